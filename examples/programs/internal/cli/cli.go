// Package cli is what causeway and causeway-agent have in common.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/internal/mask"
	"github.com/causewayproject/causeway/internal/printable"
)

// UsageError is a mistake on the command line.
type UsageError struct{ Text string }

func (e UsageError) Error() string { return e.Text }

// Mistake returns a [UsageError].
func Mistake(format string, args ...any) error { return UsageError{fmt.Sprintf(format, args...)} }

// FieldMistake makes a mistake of a library's error. Fields are pairs: what the error
// calls a field, and the flag that it is to name instead. It returns nil for nil.
func FieldMistake(err error, fields ...string) error {
	if err == nil {
		return nil
	}
	fields = append(fields[:len(fields):len(fields)], "\n", "; ") // errors.Join has lines
	return Mistake("%s", strings.NewReplacer(fields...).Replace(err.Error()))
}

// Version returns the name of a program with its version, as the Go tool noted it.
func Version(program string) string {
	version := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	return program + " " + version
}

// Build is [Version], and what the program was built from.
func Build(program string) string {
	text := Version(program)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			text += ", commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			text += " with changes"
		}
	}
	return text + ", " + info.GoVersion + " " + runtime.GOOS + "/" + runtime.GOARCH
}

// ErrFailed ends a program with status 1 that has said why already.
var ErrFailed = errors.New("failed")

// Status ends a program with this status. It has said why already, as with [ErrFailed].
type Status int

func (s Status) Error() string { return fmt.Sprintf("status %d", int(s)) }

// Is makes errors.Is find ErrFailed.
func (s Status) Is(target error) bool { return target == ErrFailed }

// List is a flag that may be given several times, and holds commas between
// entries.
type List []string

// String returns the entries with commas.
func (l *List) String() string { return strings.Join(*l, ",") }

// Type is for the help of pflag.
func (l *List) Type() string { return "list" }

// Set adds entries.
func (l *List) Set(text string) error {
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			*l = append(*l, entry)
		}
	}
	return nil
}

// Main runs a program until it is done or a signal ends its context; a second
// signal ends the process. It does not return. The function returns the name of what
// failed, for the message.
func Main(run func(ctx context.Context) (name string, err error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	name, err := run(ctx)
	status, hasStatus := errors.AsType[Status](err)
	_, isMistake := errors.AsType[UsageError](err)
	switch {
	case err == nil:
		os.Exit(0)
	case hasStatus:
		os.Exit(int(status))
	case isMistake:
		fmt.Fprintf(os.Stderr, "%s: %s (see: %s --help)\n", name, errorText(err), name)
		os.Exit(2)
	case !errors.Is(err, ErrFailed):
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, errorText(err))
	}
	os.Exit(1)
}

// errorText is for a terminal: an error may quote what others wrote.
func errorText(err error) string { return printable.Lines(err.Error(), 64<<10) }

// WriteJSON writes v as JSON, with escapes for what does not print.
func WriteJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(printable.JSON(text.Bytes()))
	return err
}

// Quote quotes an address for a message, without a password.
func Quote(address string) string { return strconv.Quote(mask.Address(address)) }

// NewDialer returns the Dialer of a flag --proxy: a URL, direct, or "" for the environment's.
func NewDialer(proxy string) (dialer.Dialer, error) {
	switch proxy {
	case "":
		return dialer.FromEnvironment()
	case "direct":
		return dialer.Direct{}, nil
	}
	u, err := dialer.ParseURL(proxy)
	if err != nil {
		return nil, err
	}
	return dialer.FromURL(u, nil)
}

// Listen is net.Listen. For an empty address it returns nil and no error; for text that is
// not an address, a [UsageError]. On a host without 127.0.0.1 the error names the address
// of IPv6 to take instead.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if wrong, ok := errors.AsType[*net.AddrError](err); ok {
		return nil, Mistake("%s is not HOST:PORT: %s", Quote(address), wrong.Err)
	}
	if host, port, _ := net.SplitHostPort(address); host == "127.0.0.1" && errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, fmt.Errorf("%w: this host has no IPv4; take [::1]:%s", err, port)
	}
	return l, err
}

// ListenUnix listens on a socket that only the user can open. It replaces a socket
// that a former process has left.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s is in use", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// It gets its name when its mode is right.
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path+".new")
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return nil, fmt.Errorf("%s: %w", path, op.Err) // without .new, of which nobody knows
	}
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(path+".new", 0o600), os.Rename(path+".new", path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return renamed{l, &net.UnixAddr{Net: "unix", Name: path}}, nil
}

// renamed is a listener whose socket has another name since it was made.
type renamed struct {
	net.Listener
	addr net.Addr
}

// Addr returns the present name.
func (r renamed) Addr() net.Addr { return r.addr }

// ServeHTTP serves h on l until ctx ends, and closes l. What strangers cost is bounded: a
// connection is for one request, and few requests compute at once. To connections of this machine it
// answers by the names localhost and by addresses only: else a web page in a browser here
// could read what h serves, by a name of its own that leads to 127.0.0.1 (DNS rebinding).
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: knownHosts(inTurn(h)), ConnContext: connContext,
		ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
	}
	server.SetKeepAlivesEnabled(false) // who asks again behind an answer that it does not read would keep its place
	defer context.AfterFunc(ctx, func() { server.Close() })()
	err := server.Serve(newPlaceListener(l))
	server.Close() // waits for the one above
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func knownHosts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if ok && local.IP.IsLoopback() && !isLocalName(r.Host) {
			http.Error(w, "this machine is asked by another name than localhost: use http://localhost and the port, or have the proxy in front send Host: localhost", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLocalName reports whether no DNS server can have led a browser here by this Host: it is
// an address, localhost or a name below it (RFC 6761), or missing, as in HTTP/1.0.
func isLocalName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// cgroupLimits say how many bytes a container may use, by version 2 and 1 of cgroups.
var cgroupLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// MemoryShare returns a quarter of the bytes that this process may use: those of GOMEMLIMIT,
// or of its container, nine tenths of which become Go's limit. It is 0 if there is no limit.
func MemoryShare() int64 {
	limit := debug.SetMemoryLimit(-1)
	for _, file := range cgroupLimits {
		text, _ := os.ReadFile(file)
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n < 1<<50 && limit == math.MaxInt64 { // version 1 has no "max"
			debug.SetMemoryLimit(n / 10 * 9)
			limit = n
		}
	}
	if limit == math.MaxInt64 {
		return 0
	}
	return limit / 4
}
