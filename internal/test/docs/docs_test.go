// Package docs checks the README and the pages of docs: that their Go blocks
// compile, their links lead somewhere, and their commands have the flags.
package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const root = "../../.."

// To compile what other modules require takes minutes the first time. .ci/test does.
var nested = flag.Bool("nested", false, "compile the blocks and programs of nested modules, too")

// page is a Markdown file of the repository, by its path from the root.
type page struct{ path, text string }

// pages returns the Markdown files that match the patterns.
func pages(t *testing.T, patterns ...string) (all []page) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: got %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path, _ := filepath.Rel(root, file)
			all = append(all, page{filepath.ToSlash(path), string(text)})
		}
	}
	return all
}

// guides are what users read first.
func guides(t *testing.T) []page {
	return pages(t, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md", "examples/deploy/*.md")
}

// everyPage adds the files that stand beside code.
func everyPage(t *testing.T) []page {
	return append(guides(t), pages(t, "tunnel/*.md", "tunnel/*/*.md", "internal/bench/*.md", "internal/bench/*/*.md")...)
}

func TestREADMELength(t *testing.T) {
	if n := strings.Count(pages(t, "README.md")[0].text, "\n"); n > 200 {
		t.Errorf("the README has %d lines, want 200 at most", n)
	}
}

// A Go block is a whole file. It belongs to the library's module, or to that of
// the folder which a comment before it names.
var goBlock = regexp.MustCompile("(?ms)(?:^<!-- module: (\\S+) -->\n)?^```go\n(.*?)^```$")

func TestGoBlocksCompile(t *testing.T) {
	dir := t.TempDir()
	overlays := map[string]map[string]string{} // by module: file in the module to file on disk
	blocks := 0
	for _, p := range everyPage(t) {
		for _, m := range goBlock.FindAllStringSubmatch(p.text, -1) {
			module, code := m[1], m[2]
			if !strings.HasPrefix(code, "package ") {
				t.Errorf("%s: a block is no whole file:\n%s", p.path, code)
				continue
			}
			blocks++
			file := filepath.Join(dir, fmt.Sprintf("block%d.go", blocks))
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: gofmt does not like a block: %s %v\n%s", p.path, out, err, code)
			}
			folder, err := filepath.Abs(filepath.Join(root, module, "docs-"+strings.NewReplacer("/", "-", ".", "-").Replace(p.path)))
			if err != nil {
				t.Fatal(err)
			}
			if overlays[module] == nil {
				overlays[module] = map[string]string{}
			}
			overlays[module][filepath.Join(fmt.Sprintf("%s-%d", folder, blocks), "block.go")] = file
		}
	}
	if blocks < 8 || len(overlays) < 2 {
		t.Errorf("got %d blocks in %d modules: is the pattern still right?", blocks, len(overlays))
	}
	for module, files := range overlays {
		if module != "" && !*nested {
			continue
		}
		t.Run("module "+module, func(t *testing.T) { buildBlocks(t, module, files) })
	}
}

// buildBlocks compiles files that are not there as if they were in a module.
func buildBlocks(t *testing.T, module string, files map[string]string) {
	text, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", overlay, "-o", os.DevNull}
	for file := range files {
		args = append(args, "./"+filepath.Base(filepath.Dir(file)))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(root, module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

var (
	inlineLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	htmlLink   = regexp.MustCompile(`(?:src|srcset|href)="([^"]+)"`)
	fence      = regexp.MustCompile("(?ms)^```.*?^```$")
	heading    = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

func TestLinks(t *testing.T) {
	links := 0
	for _, p := range everyPage(t) {
		text := fence.ReplaceAllString(p.text, "")
		for _, m := range append(inlineLink.FindAllStringSubmatch(text, -1), htmlLink.FindAllStringSubmatch(text, -1)...) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			file := filepath.Join(root, p.path)
			if target != "" {
				file = filepath.Join(root, filepath.Dir(p.path), filepath.FromSlash(target))
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", p.path, m[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			if there, err := os.ReadFile(file); err != nil || !slices.Contains(anchors(string(there)), anchor) {
				t.Errorf("%s: %s has no heading #%s", p.path, file, anchor)
			}
		}
	}
	if links < 50 {
		t.Errorf("got %d links: is the pattern still right?", links)
	}
}

// anchors returns the names that GitHub gives to headings.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return all
}

// command is a program with its arguments, in a page.
type command struct {
	page, program, subcommand string
	flags                     []string
}

// commands returns those of a page: "go run ./examples/PROGRAM ..." in an
// indented line or in backquotes, and "PROGRAM ..." in backquotes.
func commands(p page, programs []string) (all []command) {
	for line := range strings.Lines(p.text) {
		code := []string{}
		if strings.HasPrefix(line, "    ") {
			code = append(code, strings.TrimSpace(line))
		} else {
			for i, part := range strings.Split(line, "`") {
				if i%2 == 1 {
					code = append(code, part)
				}
			}
		}
		for _, text := range code {
			text, _, _ = strings.Cut(text, " | ")
			words := strings.Fields(strings.TrimPrefix(text, "go run "))
			if len(words) == 0 {
				continue
			}
			program, isPath := strings.CutPrefix(words[0], "./examples/")
			if !isPath && (!slices.Contains(programs, program)) {
				continue
			}
			c := command{page: p.path, program: program}
			for i, word := range words[1:] {
				name, isFlag := strings.CutPrefix(word, "-")
				name = strings.TrimPrefix(name, "-")
				name, _, _ = strings.Cut(name, "=")
				switch {
				case word == "&&":
					goto done
				case isFlag && name != "":
					c.flags = append(c.flags, name)
				case (i == 0 || i == 1 && slices.Contains([]string{"noproxy", "egress", "join"}, c.subcommand)) && regexp.MustCompile(`^[a-z]+$`).MatchString(word):
					c.subcommand = strings.TrimSpace(c.subcommand + " " + word)
				}
			}
		done:
			all = append(all, c)
		}
	}
	return all
}

func TestCommands(t *testing.T) {
	programs := []string{"causeway", "causeway-agent", "quickstart", "tunnelssh"}
	var found []command
	used := map[string]bool{}
	for _, p := range guides(t) {
		if p.path == "CHANGELOG.md" { // it names what is gone
			continue
		}
		for _, c := range commands(p, programs) {
			if !slices.Contains(programs, c.program) {
				t.Errorf("%s: there is no program %s", c.page, c.program)
				continue
			}
			if strings.HasPrefix(c.program, "causeway") && !*nested {
				continue
			}
			found = append(found, c)
			used[c.program] = true
		}
	}
	if least := map[bool]int{false: 2, true: 20}[*nested]; len(found) < least {
		t.Fatalf("got %d commands, want %d at least: is the pattern still right?", len(found), least)
	}
	dir := t.TempDir()
	for _, program := range slices.Sorted(maps.Keys(used)) {
		folder := "examples"
		if strings.HasPrefix(program, "causeway") {
			folder = "examples/programs" // a module of its own
		}
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir+string(filepath.Separator), "./"+program)
		cmd.Dir = filepath.Join(root, folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	help := map[string]string{}
	for _, c := range found {
		if len(c.flags) == 0 && c.subcommand == "" {
			continue
		}
		key := strings.TrimSpace(c.program + " " + c.subcommand)
		if _, ok := help[key]; !ok {
			out, _ := exec.Command(filepath.Join(dir, c.program), append(strings.Fields(c.subcommand), "-h")...).CombinedOutput()
			help[key] = string(out)
		}
		if strings.Contains(help[key], "unknown command") {
			t.Errorf("%s: %s knows no command %s", c.page, c.program, c.subcommand)
		}
		for _, name := range c.flags {
			if name != "h" && !regexp.MustCompile(`(?m)^ +--?`+regexp.QuoteMeta(name)+`\b`).MatchString(help[key]) {
				t.Errorf("%s: %s has no flag %s; got\n%s", c.page, key, name, help[key])
			}
		}
	}
}

// A test, a benchmark or a fuzz target that a page or a script names is there.
func TestNamedTests(t *testing.T) {
	declared := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		names, err := declaredNames(path)
		for _, name := range names {
			declared[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	checked := 0
	for _, p := range append(everyPage(t), pages(t, ".ci/*")...) {
		for _, name := range named.FindAllString(p.text, -1) {
			checked++
			if !declared[name] {
				t.Errorf("%s names %s: there is no such test", p.path, name)
			}
		}
	}
	if checked < 20 {
		t.Errorf("got %d names: is the pattern still right?", checked)
	}
}

// internals.md names files and what to look for in them: each name that stands in
// backquotes after "FILE: ", or after ", then ", is declared in that file.
func TestInternalsNames(t *testing.T) {
	named := regexp.MustCompile("\\]\\(\\.\\./([^)]+\\.go)\\): (`[A-Za-z]+`(?:, then `[A-Za-z]+`)*)")
	found := named.FindAllStringSubmatch(pages(t, "docs/internals.md")[0].text, -1)
	if len(found) < 8 {
		t.Fatalf("got %d names: is the pattern still right?", len(found))
	}
	for _, m := range found {
		declared, err := declaredNames(filepath.Join(root, m[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		for name := range strings.SplitSeq(m[2], ", then ") {
			if name = strings.Trim(name, "`"); !slices.Contains(declared, name) {
				t.Errorf("docs/internals.md: %s declares no %s", m[1], name)
			}
		}
	}
}

// declaredNames returns the functions, methods, types, variables and constants that a Go
// file declares outside of functions.
func declaredNames(file string) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names, nil
}

// The texts and reasons in the first column of troubleshooting.md's tables are
// what the code says.
func TestTroubleshootingTexts(t *testing.T) {
	var code strings.Builder
	for _, folder := range []string{"tunnel", "kubeconfig", "dialer"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	texts := 0
	for line := range strings.Lines(pages(t, "docs/troubleshooting.md")[0].text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.Contains(cells[1], "kubectl") {
			continue
		}
		for i, text := range strings.Split(cells[1], "`") {
			if text = strings.TrimSuffix(text, "..."); i%2 == 0 {
				continue
			}
			texts++
			if !strings.Contains(code.String(), strings.TrimSpace(text)) {
				t.Errorf("docs/troubleshooting.md: no code says %q", text)
			}
		}
	}
	if texts < 30 {
		t.Errorf("got %d texts: is the pattern still right?", texts)
	}
}

// The pictures were drawn from the source as it is: each text of it is in both.
func TestPicture(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "docs/picture/parts.dot"))
	if err != nil {
		t.Fatal(err)
	}
	labels := regexp.MustCompile(`label="([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(labels) < 8 {
		t.Fatalf("got %d labels", len(labels))
	}
	for _, name := range []string{"parts-light.svg", "parts-dark.svg"} {
		svg, err := os.ReadFile(filepath.Join(root, "docs/picture", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range labels {
			for line := range strings.SplitSeq(m[1], `\n`) {
				if !strings.Contains(html.UnescapeString(string(svg)), ">"+line+"<") {
					t.Errorf("%s has no %q: run docs/picture/draw.sh", name, line)
				}
			}
		}
	}
}
