package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Lengths in the plots, in pixels where they are shown as they are.
const (
	plotWidth   = 1200
	plotMargin  = 28
	panelWidth  = 540
	panelHeight = 230
	axisLeft    = 66 // of a panel's left edge: room for the numbers
	axisBottom  = 44
	titleHeight = 30
	headHeight  = 84

	serverColour = "#2f5d9b"
	agentColour  = "#d2601a"
	limitColour  = "#b91c1c"
	ink          = "#1f2937"
	grey         = "#6b7280"
	faint        = "#e5e7eb"
)

// drawing is an SVG that grows.
type drawing struct{ strings.Builder }

var escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func (d *drawing) text(x, y float64, size int, anchor, colour, s string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, size, anchor, colour, escapes.Replace(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, colour, more string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" %s/>`+"\n", x1, y1, x2, y2, colour, more)
}

// plot is the result for a person who looks.
func (r *result) plot() string {
	d := &drawing{}
	c := r.Conditions
	d.text(plotMargin, 36, 20, "start", ink, fmt.Sprintf("A fleet on one machine: %d agents, each with sessions with two of %d replicas", r.most(), replicas))
	d.text(plotMargin, 60, 12, "start", grey, fmt.Sprintf("%s · %d cores of %s, shared with other programs · Linux %s · %s",
		c.Date.Format("2006-01-02"), c.Cores, c.CPU, c.Kernel, c.Go))
	y := float64(headHeight)
	if len(r.Idle) > 0 {
		r.idlePlots(d, y)
		y += panelHeight + 50
	}
	if len(r.Restarts) > 0 {
		y = r.restartPlots(d, y)
	}
	height := y + plotMargin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" viewBox="0 0 %d %.0f" font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif">`+"\n"+
		`<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n", plotWidth, height, plotWidth, height) + d.String() + "</svg>\n"
}

func (r *result) most() int {
	if len(r.Idle) == 0 {
		return 0
	}
	return r.Idle[len(r.Idle)-1].Agents
}

// A panel is a pair of axes. Values on the horizontal one go from 0 to 1.
type panel struct {
	*drawing
	x, y float64 // of the left upper corner
	most float64 // on the vertical axis
}

func (p panel) at(x, v float64) (px, py float64) {
	const width, height = panelWidth - axisLeft - 90, panelHeight - titleHeight - axisBottom
	return p.x + axisLeft + x*width, p.y + titleHeight + height*(1-v/p.most)
}

// newPanel draws the axes. The ticks are round numbers, of which the last is
// above most.
func newPanel(d *drawing, x, y float64, title, unit, horizontal string, most float64) panel {
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.2, 0.5, 1} {
		if most/(step*part) <= 6 {
			step *= part
			break
		}
	}
	p := panel{d, x, y, step * math.Ceil(most*1.02/step)}
	d.text(x, y+14, 14, "start", ink, title)
	for v := 0.0; v <= p.most*1.001; v += step {
		x1, py := p.at(0, v)
		x2, _ := p.at(1, v)
		d.line(x1, py, x2, py, faint, "")
		d.text(x1-8, py+4, 11, "end", grey, fmt.Sprintf("%.4g", v))
	}
	px, py := p.at(0.5, 0)
	d.text(px, py+36, 11, "middle", grey, horizontal)
	top, _ := p.at(0, 0)
	_, middle := p.at(0, p.most/2)
	fmt.Fprintf(d, `<text transform="translate(%.1f %.1f) rotate(-90)" font-size="11" text-anchor="middle" fill="%s">%s</text>`+"\n", top-48, middle, grey, escapes.Replace(unit))
	return p
}

// limit draws where values are not to go, if that is in the panel.
func (p panel) limit(v float64, label string) {
	if v > p.most {
		return
	}
	x1, y := p.at(0, v)
	x2, _ := p.at(1, v)
	p.line(x1, y, x2, y, limitColour, `stroke-dasharray="5 4"`)
	p.text(x1+(x2-x1)/2, y+13, 11, "middle", limitColour, label) // the legend is on the right
}

// curve draws points that are joined, with marks if there are few.
func (p panel) curve(points [][2]float64, colour, more string) {
	var path strings.Builder
	for _, v := range points {
		x, y := p.at(v[0], v[1])
		fmt.Fprintf(&path, "%.1f,%.1f ", x, y)
		if len(points) < 10 {
			fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x, y, colour)
		}
	}
	fmt.Fprintf(p, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.8" %s/>`+"\n", strings.TrimSpace(path.String()), colour, more)
}

// key names a curve, at its last point.
func (p panel) key(row int, colour, more, label string) {
	x, y := p.at(1, p.most)
	y += 8 + float64(row)*16
	p.line(x+6, y, x+24, y, colour, `stroke-width="1.8" `+more)
	p.text(x+28, y+4, 11, "start", ink, label)
}

const dashed = `stroke-dasharray="2 3"`

// idlePlots are memory and CPU against the number of agents.
func (r *result) idlePlots(d *drawing, y float64) {
	var most, cpu float64
	for _, s := range r.Idle {
		for _, side := range s.sides() {
			most, cpu = max(most, side.Heap/1024, side.RSS/1024), max(cpu, 100*side.CPU)
		}
	}
	left := newPanel(d, plotMargin, y, "Memory of an idle agent, with two sessions", "KiB an agent and side", "agents", max(most, limitMemory/1024))
	right := newPanel(d, plotMargin+panelWidth+60, y, "CPU of all idle agents", "% of a core", "agents", max(cpu, 100*limitCPU))
	left.limit(limitMemory/1024, "40 KiB")
	right.limit(100*limitCPU, "10%")
	for i, name := range sideNames {
		colour := []string{serverColour, agentColour}[i]
		var heap, rss, cpu [][2]float64
		for n, s := range r.Idle {
			x := r.position(n)
			side := s.sides()[i]
			heap = append(heap, [2]float64{x, side.Heap / 1024})
			rss = append(rss, [2]float64{x, max(side.RSS/1024, 0)})
			cpu = append(cpu, [2]float64{x, 100 * side.CPU})
		}
		left.curve(heap, colour, "")
		left.curve(rss, colour, dashed)
		left.key(2*i+3, colour, "", name+", heap")
		left.key(2*i+4, colour, dashed, "resident")
		right.curve(cpu, colour, "")
		right.key(i+3, colour, "", name)
	}
	for n, s := range r.Idle {
		for _, p := range []panel{left, right} {
			px, py := p.at(r.position(n), 0)
			d.text(px, py+16, 11, "middle", grey, fmt.Sprint(s.Agents))
		}
	}
}

// position is where a step is on the horizontal axis, which is logarithmic.
func (r *result) position(n int) float64 {
	first, last := math.Log(float64(r.Idle[0].Agents)), math.Log(float64(r.most()))
	if first == last {
		return 0.5
	}
	return (math.Log(float64(r.Idle[n].Agents)) - first) / (last - first)
}

// restartPlots are the agents with two sessions against the time, for each
// restart, and how long it took.
func (r *result) restartPlots(d *drawing, y float64) float64 {
	const barStep = 24
	const axisStep = 5 * time.Second // there are five of the same length
	longest := time.Second
	for _, t := range r.Restarts {
		longest = max(longest, t.Two)
	}
	longest = (longest + axisStep - 1).Truncate(axisStep)
	scale := func(t time.Duration) float64 { return t.Seconds() / longest.Seconds() }
	p := newPanel(d, plotMargin, y, "Agents with sessions with two replicas, after it began", "% of the agents", "seconds", 98)
	for i := range 6 {
		px, py := p.at(float64(i)/5, 0)
		d.text(px, py+16, 11, "middle", grey, fmt.Sprint(longest.Seconds()*float64(i)/5))
	}
	const x, labels = plotMargin + panelWidth + 60, 130.0
	d.text(x, y+14, 14, "start", ink, "Seconds until all agents have one session, and two")
	for i, t := range r.Restarts {
		colour := restartColours[i%len(restartColours)]
		var points [][2]float64
		for _, c := range t.Curve {
			points = append(points, [2]float64{scale(c.At), 100 * float64(c.Two) / float64(max(r.most(), 1))})
		}
		p.curve(points, colour, "")
		top := y + titleHeight + float64(i)*barStep
		const width = 300.0
		d.text(x+labels-8, top+13, 12, "end", colour, t.What)
		fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="8" fill="%s" fill-opacity="0.45"/>`+"\n", x+labels, top, max(width*scale(t.One), 1), colour)
		fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="8" fill="%s"/>`+"\n", x+labels, top+8, max(width*scale(t.Two), 1), colour)
		d.text(x+labels+max(width*scale(t.Two), 1)+6, top+13, 11, "start", ink, fmt.Sprintf("%.1f and %.1f", t.One.Seconds(), t.Two.Seconds()))
	}
	return y + max(panelHeight, titleHeight+float64(len(r.Restarts))*barStep)
}

var restartColours = []string{"#2f5d9b", "#5a8fd0", "#94b8e6", "#d2601a", "#3f7d4e", "#8b3a8f"}
