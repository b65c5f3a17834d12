package calculator_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"agentlightning/examples/calc/calculator"
)

// TestMain lets the test binary be the child process that the client starts.
func TestMain(m *testing.M) {
	if os.Getenv("CALCULATOR_CHILD") == "1" {
		if err := calculator.Serve(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestChildProcess(t *testing.T) {
	t.Setenv("CALCULATOR_CHILD", "1")
	client, err := calculator.Start(t.Context(), os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			got, err := client.Evaluate(t.Context(), fmt.Sprintf("%d+1", i))
			if err != nil || got != fmt.Sprint(i+1) {
				t.Errorf("Evaluate(%d+1) = %q, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if got, err := client.Evaluate(t.Context(), "1/0"); err != nil || got != "error: calculate \"1/0\": division by zero" {
		t.Errorf("Evaluate(1/0) = %q, %v, want the tool's own words", got, err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}
