{{- define "headgate.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "headgate.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "headgate.secret" -}}
{{ .Values.secrets.existingSecret | default (include "headgate.name" .) }}
{{- end }}

{{/* The settings: those that the chart decides go before config, but for what config may choose. */}}
{{- define "headgate.config" -}}
{{- $chosen := dict "unknown" "reject" "watch_files" true "log" (dict "format" "json") "routes" (list "/etc/headgate/routes.txt") }}
{{- if not .Values.database }}{{- $_ := set $chosen "state_file" "/var/lib/headgate/buckets.state" }}{{- end }}
{{- $decided := dict "listen" "0.0.0.0:8080" "admin" "0.0.0.0:8081" "admin_token_file" "/run/secrets/headgate/admin-token" "secret_file" "/run/secrets/headgate/key-secret" "upstream" .Values.upstream "last_good" "/var/lib/headgate/last-good.json" "shutdown_timeout" (printf "%ds" (int .Values.drain.requestsSeconds)) }}
{{- if .Values.database }}
{{- $_ := set $decided "db" .Values.database }}
{{- if or .Values.secrets.existingSecret .Values.secrets.dbPassword }}
{{- $_ := set $decided "db_password_file" "/run/secrets/headgate/db-password" }}
{{- end }}
{{- else }}
{{- $_ := set $decided "db" "sqlite:/var/lib/headgate/headgate.db" }}
{{- end }}
{{- if .Values.store }}
{{- $_ := set $decided "store" (dict "redis" .Values.store "secret_file" "/run/secrets/headgate/bucket-secret") }}
{{- end }}
{{- toYaml (mergeOverwrite $chosen (deepCopy .Values.config) $decided) }}
{{- end }}

{{- define "headgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headgate.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "headgate.mounts" -}}
- {name: config, mountPath: /etc/headgate, readOnly: true}
- {name: secrets, mountPath: /run/secrets/headgate, readOnly: true}
- {name: state, mountPath: /var/lib/headgate}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "headgate.volumes" -}}
- name: config
  configMap: {name: {{ include "headgate.name" . }}}
- name: secrets
  secret: {secretName: {{ include "headgate.secret" . }}, defaultMode: 0440}
- name: tmp
  emptyDir: {}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What does not go together, said before anything is installed. */}}
{{- define "headgate.check" -}}
{{- $many := or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled }}
{{- if and $many (not .Values.database) }}
{{- fail "replicas is above 1, or autoscaling is on, and database is empty: SQLite is of one pod. Give a database, or set replicas: 1" }}
{{- end }}
{{- if and .Values.rules (not .Values.database) }}
{{- fail "rules are given and database is empty: a job cannot reach the SQLite of a pod. Give a database, or make rules by the admin API" }}
{{- end }}
{{- if and .Values.persistence.enabled .Values.database }}
{{- fail "persistence.enabled is for SQLite, and database is given: leave one of them out" }}
{{- end }}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}
{{- fail (printf "autoscaling.maxReplicas is %d, want minReplicas (%d) or more" (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}
{{- end }}
{{- end }}
