{{/* The name of everything of one service: RELEASE-source. */}}
{{- define "twinlog.name" -}}
{{- printf "%s-%s" (.root.Release.Name | trunc 50 | trimSuffix "-") .service -}}
{{- end -}}

{{- define "twinlog.labels" -}}
app.kubernetes.io/name: twinlog
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- define "twinlog.selector" -}}
app.kubernetes.io/name: twinlog
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .service }}
{{- end -}}

{{/* The image of a service, of the command line: twinlog-source. */}}
{{- define "twinlog.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end }}{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- end -}}

{{- define "twinlog.port" -}}
{{- get (dict "source" "17401" "checkpoint" "17402" "heartbeat" "17403" "configsync" "17404") . -}}
{{- end -}}

{{- define "twinlog.metricsPort" -}}
{{- get (dict "source" "17411" "checkpoint" "17412" "heartbeat" "17413" "configsync" "17414") . -}}
{{- end -}}

{{/* A value as a properties file holds it: no exponent, backslashes doubled, one line. */}}
{{- define "twinlog.value" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{- . | toString | replace "\\" "\\\\" | replace "\n" "\\n" -}}
{{- end -}}
{{- end -}}

{{- define "twinlog.sparkOnKubernetes" -}}
{{- if hasPrefix "k8s://" .Values.spark.master -}}true{{- end -}}
{{- end -}}

{{/* Whether a source process without a flow lends its cores: its workers dial the owner's pod. */}}
{{- define "twinlog.lendsCores" -}}
{{- if and (hasPrefix "local" .Values.spark.master) .Values.security.tls.secretName -}}true{{- end -}}
{{- end -}}

{{- define "twinlog.isSecure" -}}
{{- if .Values.security.tls.secretName -}}true{{- end -}}
{{- end -}}

{{/* Where certificates, tokens and Secrets are in every pod that reads the file. */}}
{{- define "twinlog.secretMounts" -}}
{{- if include "twinlog.isSecure" . }}
- {name: tls, mountPath: /etc/twinlog/tls, readOnly: true}
{{- end }}
{{- range $secret := list $.Values.security.auth.tokensSecret $.Values.security.auth.clientTokenSecret | compact | uniq }}
- {name: auth-{{ $secret }}, mountPath: /etc/twinlog/auth/{{ $secret }}, readOnly: true}
{{- end }}
{{- range $secret := $.Values.secrets }}
- {name: secret-{{ $secret }}, mountPath: /etc/twinlog/secrets/{{ $secret }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "twinlog.secretVolumes" -}}
{{- if include "twinlog.isSecure" . }}
- name: tls
  secret: {secretName: {{ $.Values.security.tls.secretName }}, defaultMode: 0440}
{{- end }}
{{- range $secret := list $.Values.security.auth.tokensSecret $.Values.security.auth.clientTokenSecret | compact | uniq }}
- name: auth-{{ $secret }}
  secret: {secretName: {{ $secret }}, defaultMode: 0440}
{{- end }}
{{- range $secret := $.Values.secrets }}
- name: secret-{{ $secret }}
  secret: {secretName: {{ $secret }}, defaultMode: 0440}
{{- end }}
{{- end -}}
