package connect

import (
	"fmt"
	"io"
)

// String returns the API server's URL, as it is now.
func (c *Client) String() string { return "connect.Client{" + c.generation().Server.Text + "}" }

// Format writes String, whatever the verb.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (c *Client) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// String returns which options are set.
func (o Options) String() string {
	return fmt.Sprintf("connect.Options{ProxyTLS: %t, Dialer: %t, Forward: %t, ReadSecret: %t, Source: %t, Changed: %t, Linger: %s}",
		o.ProxyTLS != nil, o.Dialer != nil, o.Forward != nil, o.ReadSecret != nil, o.Source != nil, o.Changed != nil, o.Linger)
}

// Format writes String, whatever the verb: a tls.Config holds private keys, a
// dialer may hold a password.
func (o Options) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, o.String()) }

// MarshalText returns String: JSON and logs hold no secret.
func (o Options) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
