package relay_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// TestRandomAborts: what a side takes for whole is whole, however the other
// one ends.
func TestRandomAborts(t *testing.T) {
	const rounds, size, workers = 1000, 200_000, 8
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			for range rounds / workers {
				abortOnce(t, size, rng.IntN(size), rng.IntN(4))
			}
		})
	}
}

// abortOnce sends size bytes from B, or breaks off after cut.
func abortOnce(t *testing.T, size, cut, how int) {
	farA, nearA := tcp(t)
	farB, nearB := tcp(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := start(ctx, nearA, nearB)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		farB.Write(make([]byte, cut))
		switch how {
		case 0:
			breakOff(farB)
		case 1:
			nearB.Close()
		case 2:
			cancel()
		default:
			farB.Write(make([]byte, size-cut))
			farB.Close()
		}
	}()
	n, err := io.Copy(io.Discard, farA)
	farA.Close()
	res := result(t, done)
	<-ended
	if whole := how == 3; err == nil && n != int64(size) || whole != (res.Err == nil) {
		t.Errorf("%d of %d bytes (cut after %d, kind %d): got %v and %+v", n, size, cut, how, err, res)
	}
	farB.Close()
}
