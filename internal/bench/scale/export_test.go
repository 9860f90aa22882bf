package main

import (
	"context"
	"io"
	"time"
)

const RoleEnv = roleEnv

var (
	Play       = playRole
	ParseBusy  = parseBusy
	ParseSteps = parseSteps
)

type (
	Result  = result
	Restart = restart
	Idle    = idle
	Side    = side

	DialCount = dialCount
)

// Run does all that a short run does.
func Run(ctx context.Context, out string, progress io.Writer) error {
	return runCommand(ctx, []string{"-short", "-out", out}, progress, progress)
}

// Parse returns the phases and the time of the soak.
func Parse(args ...string) (map[string]bool, time.Duration, error) {
	p, err := parseArgs(args)
	if err != nil {
		return nil, 0, err
	}
	return p.phases, p.Soak, nil
}

func Percentile(values []int, p int) int { return percentile(values, p) }

// Missed are the figures that are not what they are to be.
func (r *result) Missed() (what []string) {
	for _, v := range r.verdicts() {
		if !v.met {
			what = append(what, v.what)
		}
	}
	return what
}

func NewDialling(c DialCount) *dialling { return &dialling{dialCount: c} }
