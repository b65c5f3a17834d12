// Package scale fills a database through the store, as trainings of weeks would,
// and measures what people and runners ask of a server on it. It holds tests only:
//
//	go test ./test/scale -v                                                       a small one
//	go test ./test/scale -v -timeout 2h -scale.db=big.db -scale.rollouts=1000000  what the figures in bench are from
//
// The file is made the first time, about 9 GB for a million rollouts and five
// million spans, and kept.
package scale
