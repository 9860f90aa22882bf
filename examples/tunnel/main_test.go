package main

import (
	"bytes"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out bytes.Buffer
	const want = "default/prod: the API server is v1.36.0\n" +
		"tunnel: dial default/prod 10.0.0.1:22: the agent's policy does not allow the target\n"
	if err := run(t.Context(), &out); err != nil || out.String() != want {
		t.Errorf("got %q, %v; want %q", &out, err, want)
	}
}
