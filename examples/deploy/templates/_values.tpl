{{- /* What the values change. */ -}}

{{- /* causeway.checkValues refuses what is missing, and what is for another part. */ -}}
{{- define "causeway.checkValues" -}}
{{- $v := .root.Values }}
{{- $has := dict }}
{{- range .objects }}
{{- $_ := set $has .kind true }}
{{- if and (eq .kind "NetworkPolicy") (hasKey .spec "egress") }}{{ $_ := set $has "egress" true }}{{ end }}
{{- end }}
{{- $pods := list "image" "imagePullSecrets" "replicas" "resources" "args" "env" "volumes" "volumeMounts" "nodeSelector" "tolerations" }}
{{- $needs := dict "egressPorts" "egress" }}
{{- range $pods }}{{ $_ := set $needs . "Deployment" }}{{ end }}
{{- range $value, $kind := $needs }}
{{- if and (index $v $value) (not (hasKey $has $kind)) }}
{{- fail (printf "%s: not for the part %s" $value $v.part) }}
{{- end }}
{{- end }}
{{- if and (or ($v.service).type ($v.service).annotations) (ne $v.part "tunnel-server") }}
{{- fail (printf "service: for the part tunnel-server, and not for %s" $v.part) }}
{{- end }}
{{- if and (or ($v.webhook).caBundle ($v.webhook).annotations) (not (hasKey $has "MutatingWebhookConfiguration")) }}
{{- fail (printf "webhook: for the part proxy-injector, and for kubeconfig-provider with the component route-admission, and not for %s" $v.part) }}
{{- end }}
{{- $ca := ($v.webhook).caBundle }}
{{- if and $ca (not (regexMatch "(?s)-----BEGIN CERTIFICATE-----\r?\n.+-----END CERTIFICATE-----" $ca)) }}
{{- fail "webhook.caBundle: want a certificate in PEM: --set-file webhook.caBundle=ca.crt" }}
{{- end }}
{{- $registry := "([A-Za-z0-9.-]+|\\[[0-9a-fA-F:]+\\])(:[0-9]+)?/" }}
{{- if and $v.image (not (regexMatch (printf "^(%s)?[a-z0-9._/-]+(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@[a-z0-9]+:[0-9a-f]+)?$" $registry) $v.image)) }}
{{- fail (printf "image: %q is no image: want REGISTRY/NAME:TAG, without https://, and with a NAME in lower case" $v.image) }}
{{- end }}
{{- if and (hasKey $has "Deployment") (not (include "causeway.image" .root)) }}
{{- $program := include "causeway.program" .root }}
{{- fail (printf "image: required, since this chart is no release's: where the image of %s is. For example: --set image=registry.example.com/%s:1" $program $program) }}
{{- end }}
{{- if ne $v.part "tunnel-agent" }}
{{- if or $v.invitation $v.invitationSecret }}
{{- fail (printf "invitation and invitationSecret: for the part tunnel-agent, and not for %s" $v.part) }}
{{- end }}
{{- else if and $v.invitation $v.invitationSecret }}
{{- fail "invitation and invitationSecret: want one of them" }}
{{- else if not (or $v.invitation $v.invitationSecret) }}
{{- fail "invitation: required: \"causeway enroll CLUSTER --format env >invitation.env\" prints it, and --set-file invitation=invitation.env passes it. Or invitationSecret: the name of a Secret that has it" }}
{{- else if and $v.invitation (not (regexMatch "CAUSEWAY_TOKEN=\\S" $v.invitation)) }}
{{- fail "invitation: want what \"causeway enroll CLUSTER --format env\" prints, with CAUSEWAY_TOKEN: --set-file invitation=invitation.env" }}
{{- else if and $v.invitationSecret (not (regexMatch "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$" $v.invitationSecret)) }}
{{- fail (printf "invitationSecret: %q is no name of a Secret: want lower case letters, digits, - and ." $v.invitationSecret) }}
{{- end }}
{{- end }}

{{- define "causeway.program" -}}
{{- ternary "causeway-agent" "causeway" (eq .Values.part "tunnel-agent") }}
{{- end }}

{{- /* causeway.image returns the image: the release's, which has the chart's appVersion, or
nothing for a chart that is none's. */ -}}
{{- define "causeway.image" -}}
{{- if .Values.image }}
{{- .Values.image }}
{{- else if ne .Chart.AppVersion "dev" }}
{{- printf "ghcr.io/causewayproject/%s:%s" (include "causeway.program" .) .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* causeway.setValues changes one object. */ -}}
{{- define "causeway.setValues" -}}
{{- $v := .root.Values }}
{{- $object := .object }}
{{- if eq .object.kind "Deployment" }}
{{- include "causeway.setPod" (dict "v" $v "image" (include "causeway.image" .root) "pod" .object.spec.template.spec) }}
{{- with $v.replicas }}{{ $_ := set $object.spec "replicas" . }}{{ end }}
{{- else if and (eq .object.kind "Service") (eq .object.metadata.name "tunnel-server") }}
{{- with ($v.service).type }}{{ $_ := set $object.spec "type" . }}{{ end }}
{{- with ($v.service).annotations }}{{ $_ := set $object.metadata "annotations" . }}{{ end }}
{{- else if and (eq .object.kind "NetworkPolicy") $v.egressPorts }}
{{- $ports := list }}
{{- range $v.egressPorts }}{{ $ports = append $ports (dict "port" . "protocol" "TCP") }}{{ end }}
{{- $_ := set .object.spec "egress" (append .object.spec.egress (dict "ports" $ports)) }}
{{- else if eq .object.kind "MutatingWebhookConfiguration" }}
{{- with ($v.webhook).annotations }}{{ $_ := set $object.metadata "annotations" . }}{{ end }}
{{- range .object.webhooks }}
{{- $webhook := . }}
{{- with ($v.webhook).caBundle }}{{ $_ := set $webhook.clientConfig "caBundle" (b64enc .) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* causeway.setPod changes the pods. */ -}}
{{- define "causeway.setPod" -}}
{{- $v := .v }}
{{- $pod := .pod }}
{{- $container := first .pod.containers }}
{{- $_ := set $container "image" .image }}
{{- with $v.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- range $name := list "args" "volumeMounts" }}
{{- with index $v $name }}{{ $_ := set $container $name (concat (default list (index $container $name)) .) }}{{ end }}
{{- end }}
{{- $names := list }}
{{- range $v.env }}{{ $names = append $names .name }}{{ end }}
{{- $env := list }}
{{- range $container.env }}{{ if not (has .name $names) }}{{ $env = append $env . }}{{ end }}{{ end }}
{{- with concat $env (default list $v.env) }}{{ $_ := set $container "env" . }}{{ end }}
{{- with $v.volumes }}{{ $_ := set $pod "volumes" (concat (default list $pod.volumes) .) }}{{ end }}
{{- range $name := list "imagePullSecrets" "nodeSelector" "tolerations" }}
{{- with index $v $name }}{{ $_ := set $pod $name . }}{{ end }}
{{- end }}
{{- with $v.invitationSecret }}
{{- range $pod.volumes }}
{{- if eq .name "invitation" }}{{ $_ := set .secret "secretName" $v.invitationSecret }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
