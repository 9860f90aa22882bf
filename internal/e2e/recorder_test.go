package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// A recorder is an HTTP proxy, a server on other ports, and a name server for
// all names, and remembers which of the two the requests came to.
type recorder struct {
	proxy string // its host:port

	mu   sync.Mutex // guards the field below
	seen map[string]string
}

// The verdicts about a request, and the id of requests whose URL is hidden in
// TLS.
const (
	viaProxy = "proxy"
	direct   = "direct"
	hidden   = "hidden"
)

// listen serves until the process ends.
func (r *recorder) listen(ports []string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.proxy, r.seen = l.Addr().String(), map[string]string{}
	go r.serve(l, viaProxy)
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort("", port))
		if err != nil {
			return err
		}
		go r.serve(l, direct)
	}
	dns, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		return err
	}
	go serveNames(dns)
	return nil
}

// take returns what is known of a request, and forgets it.
func (r *recorder) take(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := r.seen[id]
	delete(r.seen, id)
	return verdict
}

// note keeps what is known of a request.
func (r *recorder) note(id, verdict string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if had := r.seen[id]; had != "" && had != verdict {
		verdict = had + " and " + verdict
	}
	r.seen[id] = verdict
}

func (r *recorder) serve(l net.Listener, verdict string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if id, err := requestID(conn); err == nil {
				r.note(id, verdict)
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}
		}()
	}
}

// tlsHandshake is the first byte of a TLS connection.
const tlsHandshake = 22

// requestID reads a request and returns the last element of its path. It is no
// HTTP server of Go's: that refuses some of the hosts that are asked about.
func requestID(conn net.Conn) (string, error) {
	br := bufio.NewReader(conn)
	first, err := br.Peek(1)
	if err != nil {
		return "", err
	}
	if first[0] == tlsHandshake {
		return hidden, nil
	}
	request, err := textproto.NewReader(br).ReadLine()
	for line := request; line != "" && err == nil; {
		line, err = textproto.NewReader(br).ReadLine()
	}
	if err != nil {
		return "", err
	}
	method, rest, _ := strings.Cut(request, " ")
	if method == "CONNECT" {
		return hidden, nil
	}
	target, _, _ := strings.Cut(rest, " ")
	return target[strings.LastIndexByte(target, '/')+1:], nil
}

// serveNames answers each question for an IPv4 address with one that no other
// has, and all others with nothing.
func serveNames(conn net.PacketConn) {
	packet := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(packet[:n]); err != nil || len(m.Questions) == 0 {
			continue
		}
		q := m.Questions[0]
		reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions[:1]}
		if q.Type == dnsmessage.TypeA {
			reply.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{203, 0, 113, 1}},
			}}
		}
		if answer, err := reply.Pack(); err == nil {
			conn.WriteTo(answer, from)
		}
	}
}
