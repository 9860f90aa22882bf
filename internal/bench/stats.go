package main

import (
	"cmp"
	"slices"
)

// median returns the middle value, the mean of the two in the middle of an
// even number of them, and 0 of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	i := len(s) / 2
	if len(s)%2 == 1 {
		return s[i]
	}
	return (s[i-1] + s[i]) / 2
}

// quantile returns the smallest value that is not less than a share of q of
// all, by nearest rank, and the zero value of none.
func quantile[T cmp.Ordered](v []T, q float64) T {
	if len(v) == 0 {
		var none T
		return none
	}
	s := slices.Sorted(slices.Values(v))
	// The product of a share such as 0.07 and 100 may be a bit more than 7.
	rank := int(q*float64(len(s)) + 1 - 1e-9)
	return s[min(max(rank, 1), len(s))-1]
}
