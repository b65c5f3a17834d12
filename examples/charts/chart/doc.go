// Package chart draws bar and line charts as PNG pictures. A chart has the same
// pixels every time, on every machine.
package chart
