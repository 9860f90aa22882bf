package route

import "net/http"

// ForwardURLs is Forward for servers by their URLs, the newest first.
func ForwardURLs(req *http.Request, urls ...string) (*http.Request, error) {
	var known []Server
	for _, text := range urls {
		s, err := NewServer(text)
		if err != nil {
			return nil, err
		}
		known = append(known, s)
	}
	return Forward(req, known[0], known), nil
}
