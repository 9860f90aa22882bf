#!/usr/bin/env bash
# Draws parts.dot for light and for dark, with Graphviz (Debian: graphviz).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# draw NAME PAPER INK LINE BOX FOREIGN
draw() {
	sed -e "s/=PAPER/=\"$2\"/; s/=INK/=\"$3\"/g; s/=LINE/=\"$4\"/g; s/=BOX/=\"$5\"/g; s/=FOREIGN/=\"$6\"/g" parts.dot |
		dot -Tsvg -Gsize=8.6 >"parts-$1.svg"
}
draw light '#ffffff' '#1f2328' '#59636e' '#ddf4ff' '#f6f8fa'
draw dark '#0d1117' '#f0f6fc' '#9198a1' '#0c2d6b' '#151b23'
