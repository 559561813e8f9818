{{- define "torc.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 48 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "torc.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "torc.labels" -}}
{{ include "torc.selector" . }}
{{- end }}

{{- /* The number set by `kubectl scale`; without a cluster to ask (helm template), the value. */ -}}
{{- define "torc.replicaCount" -}}
{{- $running := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "torc.name" .) -}}
{{- if $running }}{{ $running.spec.replicas }}{{ else }}{{ .Values.replicaCount }}{{ end -}}
{{- end }}
