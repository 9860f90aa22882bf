package main

import (
	"fmt"
	"time"

	"github.com/causewayproject/causeway/internal/bench/internal/rig"
)

type conditions struct {
	rig.Conditions
	OpenSSH string `json:",omitempty"`
	Runs    int
	Sizes   sizes
}

func (p *plan) conditions(began time.Time) conditions {
	c := conditions{Conditions: rig.ConditionsSince(began), Runs: p.runs, Sizes: p.sizes}
	for _, r := range p.rows {
		if r.name == opensshRow.name {
			c.OpenSSH = sshVersion()
		}
	}
	return c
}

// write leaves the three files in a folder, which it makes if need be.
func (r *result) write(dir string) error {
	if err := rig.Write(dir, r, map[string]string{"table.txt": r.table(), "chart.svg": r.chart()}); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}
