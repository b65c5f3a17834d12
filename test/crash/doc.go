// Package crash kills the real server under load, again and again, while clients
// go on through its restarts, and checks that their histories agree with what is
// stored in the end; so it does runners and the programs that they run. It holds
// tests only:
//
//	go test ./test/crash                      a few kills
//	go test ./test/crash -crash.rounds=1000   many
package crash
