{{- /* The bases and components, read as kustomize reads them. */ -}}

{{- /* causeway.load returns the objects of a folder's resources. */ -}}
{{- define "causeway.load" -}}
{{- $objects := list }}
{{- $folder := .folder }}
{{- $files := .root.Files }}
{{- $kustomization := $files.Get (printf "%s/kustomization.yaml" $folder) | fromYaml }}
{{- range $kustomization.resources }}
{{- range splitList "\n---\n" ($files.Get (printf "%s/%s" $folder .)) }}
{{- $objects = append $objects (fromYaml .) }}
{{- end }}
{{- end }}
{{- dict "objects" $objects "patches" $kustomization.patches | toYaml }}
{{- end }}

{{- /* causeway.namespace returns the name of the Namespace among the objects, or nothing. */ -}}
{{- define "causeway.namespace" -}}
{{- range .objects }}{{ if eq .kind "Namespace" }}{{ .metadata.name }}{{ end }}{{ end }}
{{- end }}

{{- /* causeway.folders returns the folders of a pattern that have a kustomization. */ -}}
{{- define "causeway.folders" -}}
{{- $folders := list }}
{{- range $path, $_ := .root.Files.Glob (printf "%s/kustomization.yaml" .pattern) }}
{{- $folders = append $folders (dir $path) }}
{{- end }}
{{- dict "folders" $folders | toYaml }}
{{- end }}

{{- /* causeway.part returns the objects of values.part: those of a base, or of a component
that has a namespace of its own. The Namespace is not among them: it is the release's, which
Helm makes, and its end would be that of what the programs keep there. */ -}}
{{- define "causeway.part" -}}
{{- $parts := dict }}
{{- range $pattern := list "*" "components/*" }}
{{- range (include "causeway.folders" (dict "root" $ "pattern" $pattern) | fromYaml).folders }}
{{- $loaded := include "causeway.load" (dict "root" $ "folder" .) | fromYaml }}
{{- $namespace := include "causeway.namespace" $loaded }}
{{- if $namespace }}
{{- $_ := set $parts (base .) (dict "namespace" $namespace "objects" $loaded.objects) }}
{{- end }}
{{- end }}
{{- end }}
{{- $names := keys $parts | sortAlpha | join ", " }}
{{- $objects := list }}
{{- if not .Values.part }}
{{- fail (printf "part: required: what this release is, one of %s. For example: --set part=tunnel-server" $names) }}
{{- else if not (hasKey $parts .Values.part) }}
{{- fail (printf "part: got %q, want one of %s" .Values.part $names) }}
{{- else }}
{{- $part := get $parts .Values.part }}
{{- if ne .Release.Namespace $part.namespace }}
{{- fail (printf "the namespace is %q: install %s with --namespace %s --create-namespace. Certificates and arguments name that namespace, and its Secrets are for this program alone" .Release.Namespace .Values.part $part.namespace) }}
{{- end }}
{{- range $part.objects }}
{{- if ne .kind "Namespace" }}{{ $objects = append $objects . }}{{ end }}
{{- end }}
{{- end }}
{{- dict "objects" $objects | toYaml }}
{{- end }}

{{- /* causeway.component returns the objects with a component: its own, unless they have a
namespace of their own, and the others patched. */ -}}
{{- define "causeway.component" -}}
{{- $folder := printf "components/%s" .name }}
{{- $known := (include "causeway.folders" (dict "root" .root "pattern" "components/*") | fromYaml).folders }}
{{- if not (has $folder $known) }}
{{- $names := list }}
{{- range $known }}{{ $names = append $names (base .) }}{{ end }}
{{- fail (printf "components: got %q, want some of %s" .name (join ", " $names)) }}
{{- end }}
{{- $loaded := include "causeway.load" (dict "root" .root "folder" $folder) | fromYaml }}
{{- $objects := .objects }}
{{- $patched := false }}
{{- range $patch := $loaded.patches }}
{{- range $objects }}
{{- if and (eq .kind $patch.target.kind) (eq .metadata.name $patch.target.name) }}
{{- include "causeway.patch" (dict "object" . "operations" (fromYamlArray $patch.patch)) }}
{{- $patched = true }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (or $patched (eq .name "monitoring")) }}
{{- fail (printf "components: %s is not for the part %s" .name .root.Values.part) }}
{{- end }}
{{- if not (include "causeway.namespace" $loaded) }}
{{- $objects = concat $objects $loaded.objects }}
{{- end }}
{{- dict "objects" $objects | toYaml }}
{{- end }}

{{- /* causeway.patch applies the operations of a JSON patch: add, replace and remove. A list
can't be changed in place, so that the map that it is in gets another. */ -}}
{{- define "causeway.patch" -}}
{{- range $operation := .operations }}
{{- $path := splitList "/" (trimPrefix "/" .path) }}
{{- $node := $.object }}
{{- $parent := dict }}
{{- $key := "" }}
{{- range initial $path }}
{{- if kindIs "slice" $node }}
{{- $node = index $node (int .) }}
{{- else }}
{{- $parent = $node }}
{{- $key = . }}
{{- $node = index $node . }}
{{- end }}
{{- end }}
{{- $last := last $path }}
{{- if kindIs "slice" $node }}
{{- $changed := list }}
{{- range $i, $entry := $node }}
{{- $here := eq (toString $i) $last }}
{{- if and $here (ne $operation.op "remove") }}{{ $changed = append $changed $operation.value }}{{ end }}
{{- if or (not $here) (eq $operation.op "add") }}{{ $changed = append $changed $entry }}{{ end }}
{{- end }}
{{- if eq $last "-" }}{{ $changed = append $changed .value }}{{ end }}
{{- $_ := set $parent $key $changed }}
{{- else if eq .op "remove" }}
{{- $_ := unset $node $last }}
{{- else }}
{{- $_ := set $node $last .value }}
{{- end }}
{{- end }}
{{- end }}
