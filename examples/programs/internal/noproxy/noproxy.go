// Package noproxy is the command that answers what a no_proxy list means, and to whom.
package noproxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/internal/printable"
	"github.com/causewayproject/causeway/noproxy"
)

const long = `Answers what a no_proxy list means, and to whom: which entry decides (explain), where curl,
Python or a JVM read it in another way than Go (lint). causeway proxyconfig prints the list
that a cluster needs.

With --json each command writes JSON. No command resolves names or opens connections, and
none shows credentials that someone put into a list.`

// Command returns the command.
func Command() *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:     "noproxy",
		Short:   "say what a no_proxy list means, and to which program",
		Long:    long,
		Example: "  causeway noproxy explain --list '.example.com,10.0.0.0/8' registry.example.com 10.1.2.3:443",
	}, explainCommand(), lintCommand())
}

// maxCell is how many bytes of a cell are shown, the last of a row aside. A host has 253.
const maxCell = 300

// writeTable writes rows in columns; an empty cell is a dash, and one with characters that
// do not print is in quotes.
func writeTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i := range row {
			if row[i] = printable.Quote(row[i]); row[i] == "" {
				row[i] = "-"
			}
			if i < len(row)-1 && len(row[i]) > maxCell { // tabwriter makes each row as wide
				row[i] = strings.ToValidUTF8(row[i][:maxCell], "") + "..."
			}
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

func writeExplanations(w io.Writer, answers []noproxy.Explanation) error {
	rows := [][]string{{"TARGET", "VERDICT", "ENTRY", "TEXT", "REASON"}}
	for _, a := range answers {
		target, verdict := a.Host, "through the proxy"
		if a.Port != "" {
			target = net.JoinHostPort(a.Host, a.Port)
		}
		if a.Bypass {
			verdict = "direct"
		}
		rows = append(rows, []string{target, verdict, indexText(a.Index), a.Text, a.Reason})
	}
	return writeTable(w, rows)
}

func indexText(i int) string {
	if i < 0 {
		return ""
	}
	return strconv.Itoa(i)
}

func explainCommand() *cobra.Command {
	var list string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain TARGET...",
		Short: "say which entry of a list decides about each target, and why",
		Long: `Says which entry of a list decides about each TARGET, a host, host:port or URL, and why.
An entry that covers nothing is a warning on standard error.`,
		Example: `  $ causeway noproxy explain --list '.svc,10.96.0.0/12,example.com:8443' https://10.96.0.1/ example.com:443
  TARGET           VERDICT            ENTRY  TEXT          REASON
  10.96.0.1:443    direct             1      10.96.0.0/12  an address of the network
  example.com:443  through the proxy  -      -             no entry covers it; entry 2 "example.com:8443" is for port 8443 only`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !cmd.Flags().Changed("list"): // an empty list is one
				return cli.Mistake("--list must be set")
			case len(args) == 0:
				return cli.Mistake("TARGET is missing, such as example.com:443; usage: %s", cmd.UseLine())
			}
			return explain(cmd.OutOrStdout(), cmd.ErrOrStderr(), list, args, asJSON)
		},
	}
	cmd.Flags().StringVar(&list, "list", "", "the no_proxy `list`; required")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func explain(stdout, stderr io.Writer, list string, targets []string, asJSON bool) error {
	rules, err := noproxy.Options{Strict: true}.Parse(list)
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			if e, ok := errors.AsType[*noproxy.EntryError](err); ok {
				fmt.Fprintf(stderr, "warning: entry %d %q covers nothing: %s\n", e.Index, e.Text, e.Reason)
			}
		}
	}
	var answers []noproxy.Explanation
	for _, target := range targets {
		host, port, err := parseTarget(target)
		if err != nil {
			return err
		}
		answers = append(answers, rules.Explain(host, port))
	}
	if asJSON {
		return cli.WriteJSON(stdout, answers)
	}
	return writeExplanations(stdout, answers)
}

// parseTarget splits a host, host:port or URL.
func parseTarget(arg string) (host, port string, err error) {
	if strings.Contains(arg, "://") {
		u, err := url.Parse(arg)
		if err != nil || u.Hostname() == "" {
			return "", "", cli.Mistake("a target is not a URL with a host") // may hold credentials
		}
		return u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]), nil
	}
	if strings.ContainsAny(arg, "@/ ") { // no URL, and no credentials to repeat
		return "", "", cli.Mistake("a target is a host, host:port or URL")
	}
	if host, port, err := net.SplitHostPort(arg); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
			return "", "", cli.Mistake("target %q is not a host and a port", arg)
		}
		return host, port, nil
	}
	host = strings.TrimSuffix(strings.TrimPrefix(arg, "["), "]")
	if host == "" {
		return "", "", cli.Mistake("a target is a host, host:port or URL")
	}
	return host, "", nil
}

func lintCommand() *cobra.Command {
	var list string
	var names cli.List
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "say where other programs read a list in another way than Go",
		Long: `Says where other programs read a list in another way than Go, and what to write instead. The
status is 1 if it finds something, so that it can guard a chart in CI.`,
		Example: `  $ causeway noproxy lint --for wget,urllib --list 'localhost,127.0.0.1,[::1],*.example.com'
  CONSUMER  ENTRY  TEXT           DOES                                                                          WRITE
  wget      -      -              sends ::1 through the proxy unless it is listed                               localhost,127.0.0.1,::1
  wget      3      *.example.com  sends https://www.example.com/ through the proxy, where Go connects directly  ".example.com" for it
  urllib    3      *.example.com  sends https://www.example.com/ through the proxy, where Go connects directly  "example.com" if the name itself may be reached directly`,
		Args: command.Args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("list") {
				return cli.Mistake("--list must be set")
			}
			parts := 1
			for _, r := range list {
				if strings.ContainsRune(", \t\n|:", r) {
					parts++
				}
			}
			if parts > maxLintParts {
				return cli.Mistake("--list has %d parts between commas, spaces, bars and colons: want at most %d, since each is compared with all others", parts, maxLintParts)
			}
			var consumers []noproxy.Consumer
			for _, name := range names {
				c, err := noproxy.ParseConsumer(name)
				if err != nil {
					return cli.Mistake("--for: %v", err)
				}
				consumers = append(consumers, c)
			}
			findings := noproxy.Lint(list, consumers...)
			if err := writeLint(cmd.OutOrStdout(), asJSON, findings); err != nil {
				return err
			}
			if len(findings) > 0 {
				return cli.ErrFailed
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&list, "list", "", "the no_proxy `list`; required")
	cmd.Flags().Var(&names, "for", "`consumers` to ask: "+strings.Join(command.Consumers(), ", ")+"; default all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	command.Complete(cmd, "for", command.Consumers()...)
	return cmd
}

// maxLintParts bounds lint, whose time grows with their square: 1024 take a second.
const maxLintParts = 1024

func writeLint(stdout io.Writer, asJSON bool, findings []noproxy.Finding) error {
	if asJSON {
		return cli.WriteJSON(stdout, append([]noproxy.Finding{}, findings...)) // [], not null
	}
	if len(findings) == 0 {
		_, err := fmt.Fprintln(stdout, "no findings")
		return err
	}
	rows := [][]string{{"CONSUMER", "ENTRY", "TEXT", "DOES", "WRITE"}}
	for _, f := range findings {
		rows = append(rows, []string{f.Consumer.String(), indexText(f.Index), f.Text, f.Does, f.Write})
	}
	return writeTable(stdout, rows)
}
