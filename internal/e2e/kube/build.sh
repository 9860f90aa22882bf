#!/usr/bin/env bash
# Builds kube-apiserver, kube-controller-manager, etcd, kubeadm and kubectl at
# the versions of this module, or at the Kubernetes version that the argument names
# (v1.36.3), and prints the folder that holds them. A second run with the same
# versions builds nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
modfile=go.mod
if [ $# -gt 0 ] && [ "$1" != "$version" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	modfile=$work/go.mod
	sed "s/v0\.${version#v1.}/v0.${1#v1.}/; s/$version/$1/; /\/\/ indirect/d" go.mod >"$modfile"
	go mod tidy -modfile="$modfile" >&2
	version=$1
fi
key=$(cat "$modfile" "${modfile%.mod}.sum" build.sh | sha256sum | cut -c1-16)
dir=${CAUSEWAY_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/causeway-e2e}/$version-$key

# The flags stay apart from those of the tests: each combination compiles
# Kubernetes anew. Without the version, kubectl cannot say its own.
number=${version#v}
ldflags="-s -w"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	ldflags+=" -X $p.gitVersion=$version -X $p.gitMajor=${number%%.*}"
	ldflags+=" -X $p.gitMinor=$(cut -d. -f2 <<<"$number") -X $p.gitTreeState=clean"
done

if [ ! -e "$dir/complete" ]; then
	mkdir -p "$dir"
	for tool in k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kubeadm,kubectl} go.etcd.io/etcd/server/v3; do
		name=$(basename "${tool%/server/v3}")
		CGO_ENABLED=0 go build -modfile="$modfile" -trimpath -ldflags "$ldflags" -o "$dir/$name" "$tool" >&2
	done
	touch "$dir/complete"
fi
echo "$dir"
