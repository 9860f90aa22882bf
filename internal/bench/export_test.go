package main

import (
	"context"
	"io"
	"time"
)

// What the tests reach.
type (
	Result     = result
	RowResult  = rowResult
	Series     = series
	Failure    = failure
	Conditions = conditions
	Sizes      = sizes
)

const RoleEnv = roleEnv

var (
	Play     = playRole
	Median   = median
	Choose   = chooseRows
	RowNames = rowNames
)

var Quantile = quantile[int]

func (r *result) Table() string { return r.table() }

// Run is plan.run, with the names as the flags have them. Rows that don't exist
// fail in their processes.
// An empty folder of profiles is for none.
func Run(ctx context.Context, names []string, what string, s Sizes, profiles string, progress io.Writer) (*Result, error) {
	m, err := chooseMeasures(what)
	if err != nil {
		return nil, err
	}
	p := &plan{measures: m, sizes: s, runs: 1, timeout: time.Minute, profiles: profiles, progress: progress}
	for _, name := range names {
		r := row{name: name, newServer: limitRow.newServer}
		if known, err := chooseRows(name); err == nil {
			r = known[0]
		}
		p.rows = append(p.rows, r)
	}
	return p.run(ctx)
}
