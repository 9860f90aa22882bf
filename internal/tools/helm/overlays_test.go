package helm

// What the releases of the rows "values of" set, and the overlays that say the same.
const (
	serverValues = `
replicas: 5
imagePullSecrets: [{name: registry}]
resources: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 2Gi}}
args: [--grace=5m, --log-format=json]
env:
- {name: CAUSEWAY_SERVER_GATEWAY, value: "https://gateway.example.com"}
- {name: CAUSEWAY_SERVER_ADVERTISE, value: "tunnel.example.com:8443"}
volumes:
- {name: door, secret: {secretName: door, defaultMode: 288}}
volumeMounts:
- {name: door, mountPath: /door, readOnly: true}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: infra, operator: Exists, effect: NoSchedule}]
egressPorts: [16443]
service: {type: NodePort, annotations: {example.com/load-balancer: internal}}
`
	serverOverlay = `
replicas: [{name: tunnel-server, count: 5}]
patches:
- target: {kind: Deployment, name: tunnel-server}
  patch: |-
    - {op: add, path: /spec/template/spec/imagePullSecrets, value: [{name: registry}]}
    - op: replace
      path: /spec/template/spec/containers/0/resources
      value: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 2Gi}}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --grace=5m}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --log-format=json}
    - {op: remove, path: /spec/template/spec/containers/0/env/3}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: CAUSEWAY_SERVER_GATEWAY, value: "https://gateway.example.com"}}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: CAUSEWAY_SERVER_ADVERTISE, value: "tunnel.example.com:8443"}}
    - {op: add, path: /spec/template/spec/volumes, value: [{name: door, secret: {secretName: door, defaultMode: 288}}]}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts, value: [{name: door, mountPath: /door, readOnly: true}]}
    - {op: add, path: /spec/template/spec/nodeSelector, value: {kubernetes.io/os: linux}}
    - {op: add, path: /spec/template/spec/tolerations, value: [{key: infra, operator: Exists, effect: NoSchedule}]}
- target: {kind: NetworkPolicy, name: tunnel-server}
  patch: |-
    - {op: add, path: /spec/egress/-, value: {ports: [{port: 16443, protocol: TCP}]}}
- target: {kind: Service, name: tunnel-server}
  patch: |-
    - {op: replace, path: /spec/type, value: NodePort}
    - {op: add, path: /metadata/annotations, value: {example.com/load-balancer: internal}}
`

	agentValues = `
invitation: |
  CAUSEWAY_TOKEN=causeway1.a.b
egressPorts: [3128, 9443]
volumes:
- {name: ca, secret: {secretName: ca}}
volumeMounts:
- {name: ca, mountPath: /ca}
`
	agentOverlay = `
secretGenerator:
- name: tunnel-agent-invitation
  namespace: tunnel-agent
  literals:
  - "invitation.env=CAUSEWAY_TOKEN=causeway1.a.b\n"
  options: {disableNameSuffixHash: true}
patches:
- target: {kind: Deployment, name: tunnel-agent}
  patch: |-
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: ca, secret: {secretName: ca}}}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: ca, mountPath: /ca}}
- target: {kind: NetworkPolicy, name: tunnel-agent}
  patch: |-
    - {op: add, path: /spec/egress/-, value: {ports: [{port: 3128, protocol: TCP}, {port: 9443, protocol: TCP}]}}
`

	injectorValues = `
args: [--pods=10.244.0.0/16]
webhook:
  caBundle: |
    -----BEGIN CERTIFICATE-----
    AAAA
    -----END CERTIFICATE-----
  annotations: {cert-manager.io/inject-ca-from: proxy-injector/proxy-injector}
`
	injectorOverlay = `
patches:
- target: {kind: Deployment, name: proxy-injector}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --pods=10.244.0.0/16}
- target: {kind: MutatingWebhookConfiguration}
  patch: |-
    - {op: add, path: /metadata/annotations, value: {cert-manager.io/inject-ca-from: proxy-injector/proxy-injector}}
    - {op: add, path: /webhooks/0/clientConfig/caBundle, value: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=}
    - {op: add, path: /webhooks/1/clientConfig/caBundle, value: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=}
`
)
