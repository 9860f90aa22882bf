package kubeconfig

import "net/http"

// Forward is forward for servers by their URLs, the newest first.
func Forward(req *http.Request, urls ...string) (*http.Request, error) {
	var known []server
	for _, text := range urls {
		s, err := newServer(text)
		if err != nil {
			return nil, err
		}
		known = append(known, s)
	}
	return forward(req, known[0], known), nil
}
