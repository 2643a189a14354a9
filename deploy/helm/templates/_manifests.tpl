{{/* The text of a manifest with the names of this release: secrets, the namespace, the engines, and where the master is found. */}}
{{- define "svc.text" -}}
{{- $values := .root.Values -}}
{{- $text := .root.Files.Get (printf "files/%s.yaml" .file) -}}
{{- $text = $text | replace "secretName: svc-auth" (printf "secretName: %s" $values.secrets.auth) -}}
{{- $text = $text | replace "name: svc-runtime-secrets" (printf "name: %s" $values.secrets.runtime) -}}
{{- $text = $text | replace "name: svc-objects" (printf "name: %s" $values.secrets.objects) -}}
{{- $engines := $values.router.engines -}}
{{- $text = $text | replace "kubernetes:svc-cache?selector=app=engine&port=8000" (printf "kubernetes:%s?selector=%s&port=%d" .root.Release.Namespace $engines.selector (int $engines.port)) -}}
{{- if gt (int $values.storeMaster.replicas) 1 -}}
{{- /* The admin server asks each master; clients follow the leader in etcd. */ -}}
{{- $masters := list -}}
{{- range $number := until (int $values.storeMaster.replicas) -}}{{- $masters = append $masters (printf "svc-store-master-%d.svc-store-master:50051" $number) -}}{{- end -}}
{{- $text = $text | replace "\"--master\", \"svc-store-master:50051\"" (printf "\"--master\", %s" (join "," $masters | quote)) -}}
{{- $text = $text | replace "\"svc-store-master:50051\"" (printf "etcd://%s" (include "svc.etcdMembers" .root) | quote) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* HOST:PORT;HOST:PORT, as the store names etcd. */}}
{{- define "svc.etcdMembers" -}}
{{- regexReplaceAll "https?://" .Values.etcd.url "" | replace "," ";" -}}
{{- end -}}

{{- define "svc.image" -}}
{{- $image := .root.Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ .name }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* Changes a workload in place: images, placement, resources, storage, and the patch. */}}
{{- define "svc.workload" -}}
{{- $root := .root -}}
{{- $object := .object -}}
{{- $values := .values -}}
{{- $pod := $object.spec.template.spec -}}
{{- range $container := concat (get $pod "initContainers" | default list) $pod.containers -}}
{{- $_ := set $container "image" (include "svc.image" (dict "root" $root "name" $container.image)) -}}
{{- $_ := set $container "imagePullPolicy" $root.Values.image.pullPolicy -}}
{{- if and (eq $root.Values.objects.url "") (hasKey $container "env") -}}
{{- $kept := list -}}
{{- range $variable := $container.env -}}{{- if not (hasPrefix "AWS_" $variable.name) -}}{{- $kept = append $kept $variable -}}{{- end -}}{{- end -}}
{{- $_ := set $container "env" $kept -}}
{{- end -}}
{{- end -}}
{{- $main := first $pod.containers -}}
{{- with get $values "resources" -}}{{- $_ := set $main "resources" . -}}{{- end -}}
{{- with get $values "extraArgs" -}}{{- $_ := set $main "args" (concat $main.args .) -}}{{- end -}}
{{- with $root.Values.image.pullSecrets -}}
{{- $secrets := list -}}{{- range . -}}{{- $secrets = append $secrets (dict "name" .) -}}{{- end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" -}}
{{- with get $values $key -}}{{- $_ := set $pod $key . -}}{{- end -}}
{{- end -}}
{{- if and (hasKey $object.spec "replicas") (hasKey $values "replicas") -}}{{- $_ := set $object.spec "replicas" $values.replicas -}}{{- end -}}
{{- if hasKey $object.spec "volumeClaimTemplates" -}}
{{- $claim := (first $object.spec.volumeClaimTemplates).spec -}}
{{- $_ := set $claim.resources.requests "storage" $values.storage -}}
{{- with get $values "storageClassName" -}}{{- $_ := set $claim "storageClassName" . -}}{{- end -}}
{{- end -}}
{{- with get $values "patch" -}}{{- $_ := mergeOverwrite $object . -}}{{- end -}}
{{- end -}}

{{/* Several masters: each has a copy of the log, one leads, and all name etcd. */}}
{{- define "svc.masters" -}}
{{- $pod := .object.spec.template.spec -}}
{{- $main := first $pod.containers -}}
{{- $args := list "--enable_ha" "true" "--etcd_endpoints" (include "svc.etcdMembers" .root) "--cluster_id" .root.Values.storeMaster.clusterID "--store.member_name" "$(POD_NAME)" "--store.advertised_host" "$(POD_IP)" "--store.replication_port" "50052" -}}
{{- $_ := set $main "args" (concat $main.args $args) -}}
{{- $_ := set $main "env" (list (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name"))) (dict "name" "POD_IP" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP")))) -}}
{{- $_ := set $main "ports" (append $main.ports (dict "name" "replication" "containerPort" 50052)) -}}
{{- $_ := set $pod "topologySpreadConstraints" (list (dict "maxSkew" 1 "topologyKey" "kubernetes.io/hostname" "whenUnsatisfiable" "ScheduleAnyway" "labelSelector" (dict "matchLabels" (dict "app" "svc-store-master")))) -}}
{{- $_ := set .object.spec "podManagementPolicy" "Parallel" -}}
{{- end -}}
