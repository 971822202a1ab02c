{{- define "lanekeeper.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lanekeeper.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- $name := include "lanekeeper.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the Deployment selects by: never changes, because selectors cannot. */}}
{{- define "lanekeeper.selector" -}}
app.kubernetes.io/name: {{ include "lanekeeper.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Labels of every object. What is the chart's own wins over commonLabels, so that no key stands twice. */}}
{{- define "lanekeeper.labels" -}}
{{- $own := include "lanekeeper.ownLabels" . | fromYaml -}}
{{ toYaml (merge $own .Values.commonLabels) }}
{{- end }}

{{- define "lanekeeper.ownLabels" -}}
{{ include "lanekeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lanekeeper.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "lanekeeper.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{- required "serviceAccount.name must be given when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* An image: a digest wins over a tag, the tag is the appVersion when empty. */}}
{{- define "lanekeeper.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .default .image.tag) }}
{{- end }}
{{- end }}

{{/* What the operator does in the namespaces of sets. */}}
{{- define "lanekeeper.rules" -}}
# Sets: watched, and given a finalizer and a status.
- apiGroups: [lanekeeper.dev]
  resources: [orderedpartitionsets]
  verbs: [get, list, watch, patch]
- apiGroups: [lanekeeper.dev]
  resources: [orderedpartitionsets/status]
  verbs: [patch]
# Owner references that block deletion need this where the API server enforces it.
- apiGroups: [lanekeeper.dev]
  resources: [orderedpartitionsets/finalizers]
  verbs: [update]
# One Deployment for each partition.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
# And a disruption budget, where lanes have standbys.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Whether workers run, and whether one that held a message has ended.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Credentials and certificates that a set names, by name; never listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
