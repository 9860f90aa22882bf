package family

// Chain returns a hook that calls first, and then next unless it is nil.
func Chain[A any](first, next func(A)) func(A) {
	if next == nil {
		return first
	}
	return func(a A) {
		first(a)
		next(a)
	}
}

// Chain2 is Chain for hooks that are told two things.
func Chain2[A, B any](first, next func(A, B)) func(A, B) {
	if next == nil {
		return first
	}
	return func(a A, b B) {
		first(a, b)
		next(a, b)
	}
}

// Chain3 is Chain for hooks that are told three things.
func Chain3[A, B, C any](first, next func(A, B, C)) func(A, B, C) {
	if next == nil {
		return first
	}
	return func(a A, b B, c C) {
		first(a, b, c)
		next(a, b, c)
	}
}
