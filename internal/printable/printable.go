// Package printable makes text that others wrote fit for people: logs, conditions,
// Events, pages and terminals. Others are agents, proxies, targets, tenants and
// strangers.
//
// A character prints if [unicode.IsPrint] says so: letters, marks, digits, punctuation
// and symbols of all scripts, and the space. Control characters (U+0000 to U+001F, U+007F
// to U+009F), line ends, characters that turn the direction of text, those of no width,
// tags, letters that are blank and bytes that are no UTF-8 do not. A mark that combines with
// the character before it needs one that people see, and at most eight marks are on one.
package printable

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// Most is the usual bound of a text that a peer chose.
	Most = 300
	mark = "..." // at the end of a text that was cut

	maxMarks = 8 // on a character; scripts have four or so
)

// Text returns s as one line of at most most bytes: white space becomes a space, and what
// does not print a question mark. A text that it returned stays as it is.
func Text(s string, most int) string {
	if len(s) <= most && isPrintable(s) {
		return s
	}
	b := make([]byte, 0, min(len(s), max(most, 0)))
	cut := 0 // where the mark has room
	var see reader
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		printed := see.prints(r)
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !printed || r == utf8.RuneError && size == 1:
			r = '?'
		}
		if len(b)+utf8.RuneLen(r) > most {
			b = b[:cut]
			if most >= len(mark) {
				b = append(b, mark...)
			}
			break
		}
		if b = utf8.AppendRune(b, r); len(b)+len(mark) <= most || most < len(mark) {
			cut = len(b)
		}
	}
	return string(b)
}

// Lines is Text for each line of s, most bytes in all.
func Lines(s string, most int) string {
	lines := strings.Split(strings.TrimRight(s[:min(len(s), max(most, 0))], "\n"), "\n")
	for i, line := range lines {
		lines[i] = Text(line, len(line))
	}
	return strings.Join(lines, "\n")
}

// Quote returns s if all of it prints, and else s in quotes with escapes, from which
// [strconv.Unquote] gets it back.
func Quote(s string) string {
	if isPrintable(s) {
		return s
	}
	if quoted := strconv.Quote(s); isPrintable(quoted) {
		return quoted
	}
	return strconv.QuoteToASCII(s)
}

// JSON returns the JSON text with the characters in it that do not print as escapes. It
// means the same. Line ends and tabs stay: they are between the values.
func JSON(text []byte) []byte {
	var out []byte
	kept := 0 // how much of text is in out
	var see reader
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if broken := r == utf8.RuneError && size == 1; broken || !see.prints(r) && r != '\n' && r != '\t' {
			out = append(out, text[kept:i]...)
			for _, unit := range utf16.AppendRune(nil, r) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
			kept = i + size
		}
		i += size
	}
	if kept == 0 {
		return text
	}
	return append(out, text[kept:]...)
}

// reader goes through a text.
type reader struct {
	marks int // one more than are on the last character; 0 if that carries none
}

// prints reports whether a person sees r, the next character, as one of its own.
func (t *reader) prints(r rune) bool {
	switch {
	case !unicode.IsMark(r) && (!isSeen(r) || r == ' ' || r == '"' || r == '='): // where a value begins
		t.marks = 0
	case !unicode.IsMark(r):
		t.marks = 1
	case t.marks > 0:
		t.marks++
	}
	return isSeen(r) && (!unicode.IsMark(r) || t.marks > 0 && t.marks <= maxMarks+1)
}

// isSeen reports whether fonts draw r. [unicode.IsPrint] takes some for letters and marks
// that they draw as nothing.
func isSeen(r rune) bool {
	switch r {
	case '\u034f', // joins graphemes
		'\u115f', '\u1160', '\u3164', '\uffa0', // fill the place of a Hangul letter
		'\u17b4', '\u17b5', // inherent vowels of Khmer
		'\u2800', // a Braille cell without dots
		'\ufffc': // in place of an object
		return false
	}
	return unicode.IsPrint(r)
}

func isPrintable(s string) bool {
	var see reader
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !see.prints(r) })
}
