// Package eye reads charts from their pixels. It is the part of the scripted model
// that sees: it knows the colours and the letters of package chart and nothing of
// the values behind a picture.
package eye
