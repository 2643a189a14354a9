{{/* The settings of gateways and nodes as a ConfigMap: the manifest's, the addresses in the values, and the further ones. */}}
{{- define "svc.settings" -}}
{{- $object := fromYaml (.Files.Get "files/settings.yaml") -}}
{{- $data := $object.data -}}
{{- $_ := set $data "SVC_CLUSTER_ETCD" .Values.etcd.url -}}
{{- if eq .Values.objects.url "" -}}
{{- $_ := unset $data "SVC_OBJECTS_URL" -}}
{{- $_ := unset $data "SVC_OBJECTS_ENDPOINT" -}}
{{- else -}}
{{- $_ := set $data "SVC_OBJECTS_URL" .Values.objects.url -}}
{{- $_ := set $data "SVC_OBJECTS_ENDPOINT" .Values.objects.endpoint -}}
{{- end -}}
{{- $_ := set $object "data" (mergeOverwrite $data .Values.settings) -}}
{{- $_ := set $object.metadata "namespace" .Release.Namespace -}}
{{- toYaml $object -}}
{{- end -}}
