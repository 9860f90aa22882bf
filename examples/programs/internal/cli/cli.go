// Package cli is what the command lines of the examples have in common.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// UsageError is a mistake on the command line.
type UsageError struct{ Text string }

func (e UsageError) Error() string { return e.Text }

// ErrFailed ends a program with status 1 that has said why already.
var ErrFailed = errors.New("failed")

// List is a flag that may be given several times, and holds commas between
// entries.
type List []string

// String returns the entries with commas.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set adds entries.
func (l *List) Set(text string) error {
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			*l = append(*l, entry)
		}
	}
	return nil
}

// Parse reads flags, before and after positional arguments, which it returns.
// A flag that is not given has the value of the variable PROGRAM_FLAG_NAME, if
// there is one. Help goes to stdout.
func Parse(set *flag.FlagSet, args []string, stdout io.Writer) (positional []string, err error) {
	set.SetOutput(io.Discard)
	for {
		switch err := set.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			fmt.Fprintf(stdout, "flags of %s; each may be a variable instead, such as %s:\n", set.Name(), variable(set, "some-flag"))
			set.SetOutput(stdout)
			set.PrintDefaults()
			return nil, err
		case err != nil:
			return nil, UsageError{set.Name() + ": " + err.Error()}
		}
		if set.NArg() == 0 {
			return positional, fromEnvironment(set)
		}
		positional, args = append(positional, set.Arg(0)), set.Args()[1:]
	}
}

func fromEnvironment(set *flag.FlagSet) (err error) {
	given := map[string]bool{}
	set.Visit(func(f *flag.Flag) { given[f.Name] = true })
	set.VisitAll(func(f *flag.Flag) {
		text, ok := os.LookupEnv(variable(set, f.Name))
		if !ok || given[f.Name] || err != nil {
			return
		}
		if set.Set(f.Name, text) != nil {
			err = UsageError{set.Name() + ": the variable " + variable(set, f.Name) + " has a bad value"}
		}
	})
	return err
}

func variable(set *flag.FlagSet, name string) string {
	program, _, _ := strings.Cut(set.Name(), " ")
	return strings.ToUpper(strings.NewReplacer("-", "_").Replace(program + "_" + name))
}

// Main runs a program until it is done or a signal ends its context; a second
// signal ends the process. It does not return.
func Main(run func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	var mistake UsageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, &mistake):
		fmt.Fprintf(os.Stderr, "%v; -h says more\n", err)
		os.Exit(2)
	case errors.Is(err, ErrFailed):
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// Listen is net.Listen; an empty address is no listener, and no error.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

// ServeHTTP serves h on l until ctx ends, and closes l. Connections that h
// took over are h's.
func ServeHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		server.Close()
	})
	err := server.Serve(l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
