package connect

import (
	"net/http"
	"time"
)

// ListenFirst is listenFirst.
var ListenFirst = listenFirst

// HTTP returns an HTTP client with the Client's transport.
func (c *Client) HTTP() *http.Client { return &http.Client{Transport: c.transport} }

// UseConfig is useConfig.
var UseConfig = (*Client).useConfig

// SetLinger sets how long requests of a replaced kubeconfig may go on.
func (c *Client) SetLinger(d time.Duration) { c.linger = d }
