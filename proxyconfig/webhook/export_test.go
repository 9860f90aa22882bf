package webhook

import "net/http"

// Limit is what a Server has in front of its Handler.
func Limit(h http.Handler) http.Handler { return newLimiter(h, nil) }
