// Package load calls a model through the real server, more often and more at
// once than agents do, and looks at how much memory that takes. It holds tests
// only:
//
//	go test ./test/load -v                                      a little of it
//	go test ./test/load -v -load.open=2000 -load.calls=20000    what the figures in bench are from
package load
