package dialer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/causewayproject/causeway/internal/abort"
)

const (
	// maxHeaderBytes bounds what a proxy may send before its answer is complete,
	// interim answers included.
	maxHeaderBytes = 64 << 10
	// maxBodyExcerpt is how much of a refusal's body is kept.
	maxBodyExcerpt = 4 << 10
	// maxBodyDrain is how much of a refusal's body is read to use the connection again.
	maxBodyDrain = 64 << 10
	// bodyWait bounds the wait for a refusal's body: only its status is needed.
	bodyWait = time.Second
)

var readers = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

func getReader(r io.Reader) *bufio.Reader {
	br := readers.Get().(*bufio.Reader)
	br.Reset(r)
	return br
}

func putReader(br *bufio.Reader) {
	br.Reset(nil)
	readers.Put(br)
}

// readReply reads the answer to a CONNECT up to the end of its header and not further:
// what follows a success belongs to the target. It skips interim answers. br reads
// from conn. seen, if not nil, is called with the lines of the header of a success.
func readReply(br *bufio.Reader, conn net.Conn, seen func(line []byte)) (refusal *Refusal, kept bool, err error) {
	budget := maxHeaderBytes
	first, err := br.Peek(1)
	if err != nil {
		return nil, false, replyError(err)
	}
	if first[0] < ' ' {
		return nil, false, notHTTP(first) // there may be no end of the line
	}
	for {
		line, err := readLine(br, &budget)
		if err != nil {
			return nil, false, replyError(err)
		}
		status, err := parseStatusLine(line)
		if err != nil {
			return nil, false, err
		}
		success, interim := status.code/100 == 2, status.code/100 == 1 && status.code != http.StatusSwitchingProtocols
		if success || interim {
			report := seen
			if interim {
				report = nil
			}
			if err := skipHeader(br, &budget, report); err != nil {
				return nil, false, replyError(err)
			}
			if success {
				return nil, false, nil
			}
			continue
		}
		return readRefusal(br, status, &budget, conn)
	}
}

// errCutOff is used for all kinds of proxies.
var errCutOff = fmt.Errorf("the proxy closed the connection before its answer was complete: %w", io.ErrUnexpectedEOF)

func replyError(err error) error {
	if errors.Is(err, io.EOF) {
		return errCutOff
	}
	return fmt.Errorf("reading the proxy's answer: %w", err)
}

var (
	errHeaderTooLarge = fmt.Errorf("the header is larger than %d bytes", maxHeaderBytes)
	errHeaderNUL      = errors.New("the header holds a NUL byte")
)

// readLine returns the next line without its end, which may be a bare LF. Of a line
// that is longer than br's buffer it returns the beginning. The slice is valid until
// the next read.
func readLine(br *bufio.Reader, budget *int) ([]byte, error) {
	var head []byte
	for {
		part, err := br.ReadSlice('\n')
		*budget -= len(part)
		switch {
		case *budget < 0:
			return nil, errHeaderTooLarge
		case bytes.IndexByte(part, 0) >= 0:
			return nil, errHeaderNUL
		case errors.Is(err, bufio.ErrBufferFull):
			if head == nil {
				head = bytes.Clone(part)
			}
			continue
		case err != nil:
			return nil, err
		case head != nil:
			return head, nil
		}
		return bytes.TrimSuffix(part[:len(part)-1], []byte("\r")), nil
	}
}

// skipHeader calls seen with each line, unless it is nil.
func skipHeader(br *bufio.Reader, budget *int, seen func(line []byte)) error {
	for {
		line, err := readLine(br, budget)
		if err != nil || len(line) == 0 {
			return err
		}
		if seen != nil {
			seen(line)
		}
	}
}

type statusLine struct {
	minor  byte
	code   int
	reason string
}

// parseStatusLine accepts HTTP/1.x with or without a reason phrase.
func parseStatusLine(line []byte) (statusLine, error) {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1."))
	version, rest, _ := bytes.Cut(rest, []byte(" "))
	digits, reason, _ := bytes.Cut(bytes.TrimLeft(rest, " "), []byte(" "))
	code, err := strconv.ParseUint(string(digits), 10, 16)
	if !ok || len(version) != 1 || version[0] < '0' || version[0] > '9' || len(digits) != 3 || err != nil || code < 100 {
		return statusLine{}, notHTTP(line)
	}
	s := statusLine{minor: version[0], code: int(code)}
	if s.code/100 != 2 {
		s.reason = string(reason)
	}
	return s, nil
}

// notHTTP returns an error that names the protocol of an answer that is not HTTP, if
// it can be recognised.
func notHTTP(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte{0x15}), bytes.HasPrefix(line, []byte{0x16}):
		return errors.New("the answer is TLS: the proxy is an https proxy, set TLSConfig or write https:// in its URL")
	case bytes.HasPrefix(line, []byte("SSH-")):
		return errors.New("the answer is SSH: the address is not a proxy's, check host and port")
	case bytes.HasPrefix(line, []byte{5}):
		return errors.New("the answer is SOCKS5: the proxy is not an HTTP proxy, use SOCKS5 or socks5h://")
	}
	return errors.New("the answer is not HTTP/1.x: check the host and port of the proxy")
}

// readRefusal reads the rest of an answer that is neither a success nor interim. An
// error in the header or the body does not replace the refusal, whose status is known.
func readRefusal(br *bufio.Reader, status statusLine, budget *int, conn net.Conn) (*Refusal, bool, error) {
	refusal := &Refusal{StatusCode: status.code, Reason: status.reason}
	head := fmt.Appendf(nil, "HTTP/1.%c %03d \r\n", status.minor, status.code)
	for {
		line, err := readLine(br, budget)
		if err != nil {
			return refusal, false, nil
		}
		head = append(append(head, line...), "\r\n"...)
		if len(line) == 0 {
			break
		}
	}
	rest := bufio.NewReader(io.MultiReader(bytes.NewReader(head), br))
	res, err := http.ReadResponse(rest, &http.Request{Method: http.MethodGet})
	if err != nil {
		return refusal, false, nil
	}
	refusal.Header = res.Header
	delimited := res.ContentLength >= 0 || len(res.TransferEncoding) > 0
	if !delimited {
		// The body ends with the connection: take what has come and don't wait.
		refusal.Body, _ = io.ReadAll(io.LimitReader(rest, int64(min(maxBodyExcerpt, rest.Buffered()+br.Buffered()))))
		return refusal, false, nil
	}
	timer := time.AfterFunc(bodyWait, func() { abort.Close(conn) })
	var n int64
	refusal.Body, err = io.ReadAll(io.LimitReader(res.Body, maxBodyExcerpt))
	if err == nil {
		n, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxBodyDrain))
	}
	inTime := timer.Stop()
	head = bytes.ToLower(head)
	twoLengths := bytes.Contains(head, []byte("\ncontent-length:")) && bytes.Contains(head, []byte("\ntransfer-encoding:")) // RFC 9112, section 6.3
	kept := inTime && err == nil && n < maxBodyDrain && rest.Buffered() == 0 && br.Buffered() == 0 && !twoLengths &&
		!res.Close && !strings.EqualFold(res.Header.Get("Proxy-Connection"), "close")
	return refusal, kept, nil
}
