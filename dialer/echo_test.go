package dialer_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/causewayproject/causeway/dialer"
)

const echoPassword = `c4nary/+&"word`

// echoForms are the forms in which the password, or the login, may come back.
var echoForms = []string{
	echoPassword, url.QueryEscape(echoPassword), url.PathEscape(echoPassword), html.EscapeString(echoPassword), strings.ToLower(url.QueryEscape(echoPassword)),
	`c4nary/+\u0026\"word`, "%63%34nary%2F%2B%26%22word",
	base64.StdEncoding.EncodeToString([]byte("user:" + echoPassword)), base64.URLEncoding.EncodeToString([]byte("user:" + echoPassword)),
	base64.RawURLEncoding.EncodeToString([]byte("user:" + echoPassword)), base64.StdEncoding.EncodeToString([]byte(echoPassword)),
	strings.TrimPrefix(url.UserPassword("user", echoPassword).String(), "user:"),
}

// checkEcho fails t if anything that a caller may print of err has the secret in it.
func checkEcho(t *testing.T, what string, err error, secrets ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	text := fmt.Sprintf("%v\n%+v\n%#v\n", err, err, err)
	for e := err; e != nil; e = errors.Unwrap(e) {
		text += fmt.Sprintf("%v\n%+v\n%s\n", e, e, e)
	}
	var refusal *dialer.Refusal
	if errors.As(err, &refusal) {
		text += fmt.Sprintf("%s\n%v\n%s", refusal.Reason, refusal.Header, refusal.Body)
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%s: the error holds %q:\n%s", what, secret, text)
		}
	}
}

// echoing is a proxy that answers each CONNECT with what answer makes of its header.
func echoing(answer func(http.Header) string) func(context.Context, net.Conn) {
	return func(_ context.Context, conn net.Conn) {
		br := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.WriteString(conn, answer(req.Header)); err != nil {
				return
			}
		}
	}
}

func TestProxyEchoesPassword(t *testing.T) {
	for _, form := range echoForms {
		for place, answer := range map[string]string{
			"reason":         "HTTP/1.1 403 no " + form + "\r\nContent-Length: 0\r\n\r\n",
			"reason of 407":  "HTTP/1.1 407 no " + form + "\r\nContent-Length: 0\r\n\r\n",
			"scheme":         "HTTP/1.1 407 Login\r\nProxy-Authenticate: " + form + " realm=x\r\nContent-Length: 0\r\n\r\n",
			"squid":          "HTTP/1.1 503 x\r\nX-Squid-Error: ERR_" + form + "\r\nContent-Length: 0\r\n\r\n",
			"body":           fmt.Sprintf("HTTP/1.1 403 x\r\nContent-Length: %d\r\n\r\n<p>%s</p>", len(form)+7, form),
			"body without l": "HTTP/1.1 403 x\r\n\r\n" + form,
			"cut body":       "HTTP/1.1 403 x\r\nContent-Length: 5000\r\n\r\n" + strings.Repeat(".", 4096-7) + (form + strings.Repeat(".", 5000))[:5000-4096+7],
			"cut reason":     "HTTP/1.1 403 " + strings.Repeat(".", 4096-len("HTTP/1.1 403 ")-7) + form + strings.Repeat(".", 100) + "\r\nContent-Length: 0\r\n\r\n",
			"not HTTP":       "Proxy-Authorization: " + form + "\r\n\r\n",
		} {
			addr := serve(t, listen(t), echoing(func(http.Header) string { return answer }))
			d := &dialer.HTTPConnect{Addr: addr, Auth: dialer.Basic(dialer.Password("user", echoPassword))}
			var events []error
			ctx := dialer.WithTrace(testContext(t), &dialer.Trace{Done: func(e dialer.Event) {
				if e.Err != nil {
					events = append(events, e.Err)
				}
			}})
			_, err := d.DialContext(ctx, "tcp", target)
			for _, err := range append(events, err) {
				checkEcho(t, place, err, form, form[:7])
			}
		}
	}
}

func TestProxyEchoesHeader(t *testing.T) {
	const token, key = "t0ken-of-a-bearer", "k3y-of-an-edge-proxy"
	addr := serve(t, listen(t), echoing(func(h http.Header) string {
		var b strings.Builder
		h.Write(&b)
		return fmt.Sprintf("HTTP/1.1 407 %s\r\nX-Squid-Error: %s\r\nContent-Length: %d\r\n\r\n%s",
			h.Get("Proxy-Authorization")+h.Get("X-Edge"), h.Get("X-Edge"), b.Len(), b.String())
	}))
	attempts := []string{"Bearer first-" + token, "Bearer second-" + token}
	d := &dialer.HTTPConnect{
		Addr: addr,
		Header: func(context.Context, string) (http.Header, error) {
			return http.Header{"x-edge": {key}}, nil
		},
		Auth: dialer.AuthFunc(func(_ context.Context, c *dialer.Challenge) (string, error) {
			if c.Attempt < len(attempts) {
				return attempts[c.Attempt], nil
			}
			return "", nil
		}),
	}
	_, err := d.DialContext(testContext(t), "tcp", target)
	checkEcho(t, "header", err, token, key)
	if want := "the proxy answered 407 Bearer ***"; !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
}

// An answer to the second request may repeat what the first one held.
func TestProxyEchoesEarlierCredentials(t *testing.T) {
	var first string
	addr := serve(t, listen(t), echoing(func(h http.Header) string {
		if first == "" {
			first = h.Get("Proxy-Authorization")
		}
		return "HTTP/1.1 407 was " + first + "\r\nContent-Length: 0\r\n\r\n"
	}))
	d := &dialer.HTTPConnect{Addr: addr, Auth: dialer.AuthFunc(func(_ context.Context, c *dialer.Challenge) (string, error) {
		return []string{"Negotiate c4nary-one", "Negotiate c4nary-two", ""}[c.Attempt], nil
	})}
	_, err := d.DialContext(testContext(t), "tcp", target)
	checkEcho(t, "second answer", err, "c4nary")
}

func TestHTTP2ProxyEchoesPassword(t *testing.T) {
	const password = "c4naryword"
	login := base64.StdEncoding.EncodeToString([]byte("user:" + password))
	for name, answer := range map[string]func(f *h2Frames, stream uint32){
		"header": func(f *h2Frames, stream uint32) {
			f.Answer(stream, true, "403", "x-squid-error", password+login)
		},
		"body": func(f *h2Frames, stream uint32) {
			f.Answer(stream, false, "407")
			f.Data(stream, true, "was "+password+" and "+login)
		},
		"name that is not valid": func(f *h2Frames, stream uint32) { f.Answer(stream, true, "403", "X "+password, "x") },
		"status":                 func(f *h2Frames, stream uint32) { f.Answer(stream, true, password) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, _ := framed(t, nil, func(_ context.Context, f *h2Frames) {
					for got := range f.Received {
						if got.Stream != 0 && got.Type == 1 {
							answer(f, got.Stream)
						}
					}
				})
				d.Auth = dialer.Basic(dialer.Password("user", password))
				_, err := d.DialContext(t.Context(), "tcp", target)
				checkEcho(t, name, err, password, login)
				t.Log(err)
			})
		})
	}
}
