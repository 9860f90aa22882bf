package main_test

import (
	"slices"
	"testing"

	bench "github.com/causewayproject/causeway/internal/bench"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{9, 1}, 5},
		{[]float64{9, 1, 2}, 2},
		{[]float64{4, 1, 3, 100}, 3.5},
	} {
		before := slices.Clone(tt.in)
		if got := bench.Median(tt.in); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.in, got, tt.want)
		}
		if !slices.Equal(tt.in, before) {
			t.Errorf("%v: became %v", before, tt.in)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, tt := range []struct {
		name string
		in   []int
		q    float64
		want int
	}{
		{"none", nil, 0.5, 0},
		{"one", []int{7}, 0.99, 7},
		{"middle of two", []int{2, 1}, 0.5, 1},
		{"middle of three", []int{3, 1, 2}, 0.5, 2},
		{"p99 of three", []int{3, 1, 2}, 0.99, 3},
		{"p50 of 100", hundred, 0.50, 50},
		{"p7 of 100", hundred, 0.07, 7},
		{"p99 of 100", hundred, 0.99, 99},
		{"all", hundred, 1, 100},
		{"lowest", hundred, 0, 1},
	} {
		if got := bench.Quantile(tt.in, tt.q); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, got, tt.want)
		}
	}
}
