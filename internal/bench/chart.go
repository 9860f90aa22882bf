package main

import (
	"fmt"
	"slices"
	"strings"
)

// Lengths in the chart, in its own units: pixels, where it is shown as it is.
const (
	chartWidth  = 1280
	margin      = 28
	labelWidth  = 118 // of the rows' names
	valueWidth  = 92  // right of the longest bar
	barHeight   = 15
	barStep     = 21
	panelGap    = 18
	bandHead    = 58
	bandFoot    = 26
	headHeight  = 92
	cutFactor   = 5 // a bar so many times longer than the middle one is cut
	rowsColour  = "#7b93b5"
	oursColour  = "#d2601a"
	limitColour = "#4b5563"
	plainColour = "#c3c9d2"
)

// A drawing is an SVG that grows.
type drawing struct {
	strings.Builder
	y int // where the next band begins
}

func (d *drawing) text(x, y, size int, style, s string) {
	fmt.Fprintf(d, `<text x="%d" y="%d" font-size="%d" %s>%s</text>`+"\n", x, y, size, style, escape(s))
}

var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(s string) string { return escapes.Replace(s) }

// chart is the result for a person who looks: a band per section, a panel per
// metric, a bar per row with a line from the lowest run to the highest.
func (r *result) chart() string {
	d := &drawing{y: headHeight}
	for _, s := range sections() {
		if s.drawn && r.cells(s) != nil {
			r.band(d, s)
		}
	}
	var head drawing
	fmt.Fprintf(&head, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif" fill="#1f2937">`+"\n",
		chartWidth, d.y+margin, chartWidth, d.y+margin)
	fmt.Fprintf(&head, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	head.text(margin, 36, 20, `font-weight="bold"`, "Tunnels compared: client, server, agent and target on one machine")
	c := r.Conditions
	const grey = `fill="#6b7280"`
	head.text(margin, 58, 12, grey, fmt.Sprintf("%s · medians of %s · %s of %s · Linux %s · %s",
		c.Date.Format("2006-01-02"), plural(c.Runs, "run"), plural(c.Cores, "core"), c.CPU, c.Kernel, c.Go))
	head.text(margin, 76, 12, grey, fmt.Sprintf("%.0f MB a throughput measure. Thin line: lowest to highest run. Dashed line: the limit, a TLS connection per stream without multiplexing. A bar that ends in » is cut.",
		float64(c.Sizes.Bytes)/1e6))
	return head.String() + d.String() + "</svg>\n"
}

// band draws the rows that have a value in the section.
func (r *result) band(d *drawing, s section) {
	var shown []rowResult
	for _, row := range r.Rows {
		if slices.ContainsFunc(s.metrics, func(m metric) bool { return row.Values[m.Key] != nil }) {
			shown = append(shown, row)
		}
	}
	fmt.Fprintf(d, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#e5e7eb"/>`+"\n", margin, d.y, chartWidth-margin, d.y)
	d.text(margin, d.y+24, 15, `font-weight="bold"`, s.title)
	d.text(chartWidth-margin, d.y+24, 12, `fill="#6b7280" text-anchor="end"`, s.note)
	for i, row := range shown {
		weight := "normal"
		if ours(row.Name) {
			weight = "bold"
		}
		d.text(margin+labelWidth, d.barY(i)+12, 12, fmt.Sprintf(`text-anchor="end" font-weight="%s"`, weight), row.Name)
	}
	left := margin + labelWidth + 10
	width := (chartWidth - margin - left - panelGap*(len(s.metrics)-1)) / len(s.metrics)
	for i, m := range s.metrics {
		r.panel(d, s, m, shown, left+i*(width+panelGap), width)
	}
	d.y = d.barY(len(shown)) + bandFoot
}

func (d *drawing) barY(i int) int { return d.y + bandHead + i*barStep }

func ours(name string) bool {
	return strings.HasPrefix(name, "causeway") || strings.HasPrefix(name, "gateway")
}

func colour(name string) string {
	switch {
	case ours(name):
		return oursColour
	case name == limitRow.name:
		return limitColour
	case name == loopbackRow.name:
		return plainColour
	}
	return rowsColour
}

func (r *result) panel(d *drawing, s section, m metric, shown []rowResult, x, width int) {
	most := longest(shown, m.Key)
	scale := func(v float64) int { return int(max(0, min(v, most)) / most * float64(width-valueWidth)) }
	d.text(x, d.y+bandHead-8, 12, `fill="#374151"`, m.Title)
	if i := slices.IndexFunc(shown, func(row rowResult) bool { return row.Name == limitRow.name }); i >= 0 && shown[i].Values[m.Key] != nil {
		at := x + scale(shown[i].Values[m.Key].Median)
		fmt.Fprintf(d, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-dasharray="3 3" stroke-opacity="0.5"/>`+"\n",
			at, d.barY(0)-3, at, d.barY(len(shown))-3, limitColour)
	}
	for i, row := range shown {
		y := d.barY(i)
		v := row.Values[m.Key]
		if v == nil {
			d.text(x, y+12, 11, `fill="#9ca3af"`, "–")
			continue
		}
		w := scale(v.Median)
		label := fmt.Sprintf(m.Round, v.Median)
		if s.ratio {
			label += r.ratio(row, m)
		}
		fmt.Fprintf(d, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", x, y, max(w, 1), barHeight, colour(row.Name))
		end := w
		if v.Median > most {
			d.text(x+w-12, y+12, 14, `fill="#ffffff" font-weight="bold"`, "»")
		} else if len(v.Runs) > 1 {
			low, high := scale(slices.Min(v.Runs)), scale(slices.Max(v.Runs))
			fmt.Fprintf(d, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#111827" stroke-width="1.5"/>`+"\n", x+low, y+barHeight/2, x+high, y+barHeight/2)
			end = max(end, high)
		}
		d.text(x+end+5, y+12, 11, `fill="#111827"`, label)
	}
}

// longest is the value of a bar of full length. The bare loopback has no say: it
// would leave the tunnels a stub each.
func longest(shown []rowResult, key string) float64 {
	var medians []float64
	for _, row := range shown {
		if v := row.Values[key]; v != nil && row.Name != loopbackRow.name {
			medians = append(medians, v.Median)
		}
	}
	if len(medians) == 0 {
		return 1 // loopback alone: its bar is cut
	}
	most := slices.Max(medians)
	if middle := median(medians); middle > 0 {
		most = min(most, cutFactor*middle)
	}
	return max(most, 1e-9)
}
