package deployment

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const chart = "../helm/headgate"

// helm runs the release of Helm that go.mod names.
func helm(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "helm"}, args...)...)
	cmd.Env = append(os.Environ(), "GOWORK=off", "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(),
		"HELM_DATA_HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// installations are values with which the chart is rendered, and the kinds that come of them.
var installations = map[string]struct {
	values string
	want   []string
}{
	"one gateway": {
		"{upstream: 'http://api:9000', replicas: 1}",
		[]string{"ConfigMap", "Deployment", "NetworkPolicy", "Secret", "Service", "Service"},
	},
	"one gateway that keeps its rules": {
		"{upstream: 'http://api:9000', replicas: 1, persistence: {enabled: true, storageClass: fast}, service: " +
			"{type: LoadBalancer, annotations: {a: b}}}",
		[]string{"ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "Secret", "Service", "Service"},
	},
	"everything": {
		`
upstream: https://api.example
database: postgres://headgate@db:5432/headgate
store: ["store-0:6379", "store-1:6379"]
config: {trusted_proxies: [10.0.0.0/8], unknown: limit, log: {level: warn}, listen: "127.0.0.1:1"}
rules: [{endpoint: default, limit: 20, scope: lease}]
secrets: {dbPassword: open sesame}
autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 9}
networkPolicy: {from: [{namespaceSelector: {matchLabels: {edge: "yes"}}}], adminFrom: [{podSelector: {matchLabels: {app: prometheus}}}], egress: [{ports: [{port: 53, protocol: UDP}]}]}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
image: {digest: "sha256:0123456789012345678901234567890123456789012345678901234567890123"}
imagePullSecrets: [{name: pull}]
priorityClassName: high
nodeSelector: {disk: ssd}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {}}
extraEnv: [{name: GOMEMLIMIT, value: 400MiB}]
extraVolumes: [{name: api, configMap: {name: api}}]
extraVolumeMounts: [{name: api, mountPath: /srv/api}]
podAnnotations: {a: b}
podLabels: {c: d}
`,
		[]string{"ConfigMap", "Deployment", "HorizontalPodAutoscaler", "Job", "NetworkPolicy", "PodDisruptionBudget",
			"Secret", "Service", "Service", "ServiceMonitor"},
	},
	"a secret of one's own": {
		"{upstream: 'http://api:9000', database: 'mysql://headgate@db/headgate', secrets: {existingSecret: ours}, " +
			"networkPolicy: {enabled: false}}",
		[]string{"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "Service"},
	},
}

func render(t *testing.T, values string) (out, errs string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return helm(t, "template", "edge", chart, "--namespace", "gate", "--kube-version", "1.33.0", "--values", file)
}

// rendered are the objects of an installation, read as the API server reads them: a field that a
// kind does not have is an error.
func rendered(t *testing.T, values string) (objects []runtime.Object, kinds []string) {
	t.Helper()
	out, errs, err := render(t, values)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, errs)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, text := range strings.Split("\n"+out, "\n---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		asJSON, err := yaml.ToJSON([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if string(asJSON) == "null" {
			continue
		}
		var kind struct{ APIVersion, Kind string }
		if err := json.Unmarshal(asJSON, &kind); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, kind.Kind)
		if kind.APIVersion == "monitoring.coreos.com/v1" { // of an operator, whose types are elsewhere
			continue
		}
		object, _, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Errorf("%s: %v\n%s", kind.Kind, err, text)
			continue
		}
		objects = append(objects, object)
	}
	slices.Sort(kinds)
	return objects, kinds
}

func TestChartLints(t *testing.T) {
	for name, installation := range installations {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(installation.values), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, errs, err := helm(t, "lint", "--strict", chart, "--kube-version", "1.33.0", "--values",
			file); err != nil {
			t.Errorf("%s: helm lint: %v\n%s%s", name, err, out, errs)
		}
	}
}

func TestChartRenders(t *testing.T) {
	for name, installation := range installations {
		t.Run(name, func(t *testing.T) {
			objects, kinds := rendered(t, installation.values)
			if !slices.Equal(kinds, installation.want) {
				t.Errorf("it makes %q, want %q", kinds, installation.want)
			}
			var labels map[string]string
			for _, object := range objects {
				switch o := object.(type) {
				case *appsv1.Deployment:
					labels = o.Spec.Template.Labels
					for k, v := range o.Spec.Selector.MatchLabels {
						if labels[k] != v {
							t.Errorf("the deployment selects %s=%s, and its pods have %q", k, v, labels[k])
						}
					}
					checkPod(t, &o.Spec.Template.Spec, true)
				case *batchv1.Job:
					checkPod(t, &o.Spec.Template.Spec, false)
				}
			}
			for _, object := range objects {
				var selector map[string]string
				switch o := object.(type) {
				case *corev1.Service:
					selector = o.Spec.Selector
				case *policyv1.PodDisruptionBudget:
					selector = o.Spec.Selector.MatchLabels
				case *networkingv1.NetworkPolicy:
					selector = o.Spec.PodSelector.MatchLabels
				default:
					continue
				}
				for k, v := range selector {
					if len(selector) == 0 || labels[k] != v {
						t.Errorf("%T selects %s=%s, and the pods have %q", object, k, v, labels[k])
					}
				}
			}
		})
	}
}

// checkPod holds a pod to the restricted profile of Kubernetes' pod security standards, and to what is mounted.
func checkPod(t *testing.T, pod *corev1.PodSpec, serves bool) {
	t.Helper()
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
		t.Errorf("the pod's security is %+v", s)
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
			!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("the security of %s is %+v", c.Name, s)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s asks for %+v", c.Name, c.Resources)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
		}
		if !serves {
			continue
		}
		for what, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet.Path != what || probe.HTTPGet.Port.StrVal != "admin" {
				t.Errorf("the probe of %s is %+v", what, probe)
			}
		}
		if c.StartupProbe == nil || c.Lifecycle.PreStop.Sleep.Seconds < 1 {
			t.Errorf("%s has no startup probe, or ends before balancers know", c.Name)
		}
	}
}

// TestChartRefuses: values that cannot work are refused before anything is installed, with what would be right.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                            "upstream",
		"{upstream: 'http://api:9000'}": "database is empty",
		"{upstream: 'ftp://api'}":       "upstream",
		"{upstream: 'http://api:9000', replicas: 0}": "replicas",
		"{upstream: 'http://api:9000', replica: 2}":  "replica",
		"{upstream: 'http://api:9000', replicas: 1, rules: [{endpoint: default, limit: " +
			"1}]}": "a job cannot reach the SQLite",
		"{upstream: 'http://api:9000', database: " +
			"'postgres://u:secret@db/x'}": "database",
		"{upstream: 'http://api:9000', database: 'postgres://u@db/x', persistence: {enabled: " +
			"true}}": "persistence.enabled is for SQLite",
		"{upstream: 'http://api:9000', database: 'postgres://u@db/x', store: " +
			"[store]}": "store",
		"{upstream: 'http://api:9000', database: 'postgres://u@db/x', autoscaling: {enabled: true, maxReplicas: " +
			"1}}": "maxReplicas is 1, want minReplicas (2) or more",
	} {
		if out, errs, err := render(t, values); err == nil || !strings.Contains(errs, want) {
			t.Errorf("%s: %v, want an error with %q\n%s%s", values, err, want, out[:min(len(out), 200)], errs)
		}
	}
}

// settings are the configuration of an installation, and its secrets.
func settings(t *testing.T, values string) (files map[string]string, secrets map[string][]byte) {
	t.Helper()
	objects, _ := rendered(t, values)
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.ConfigMap:
			files = o.Data
		case *corev1.Secret:
			secrets = o.Data
		}
	}
	return files, secrets
}

// TestChartKeepsItsDecisions: config may choose what the chart has no opinion on, and cannot make the pod deaf.
func TestChartKeepsItsDecisions(t *testing.T) {
	files, secrets := settings(t, installations["everything"].values)
	for _, line := range []string{"listen: 0.0.0.0:8080", "admin: 0.0.0.0:8081", "unknown: limit", "level: warn",
		"format: json", "db: postgres://headgate@db:5432/headgate"} {
		if !strings.Contains(files["headgate.yaml"], line+"\n") && !strings.HasSuffix(files["headgate.yaml"], line) {
			t.Errorf("headgate.yaml has no %q:\n%s", line, files["headgate.yaml"])
		}
	}
	if strings.Contains(files["headgate.yaml"], "sesame") || string(secrets["db-password"]) != "open sesame" {
		t.Errorf("the password is in the settings, or not in the secret: %q", secrets["db-password"])
	}
	for _, name := range []string{"admin-token", "key-secret", "bucket-secret"} {
		if len(secrets[name]) != 64 {
			t.Errorf("%s has %d characters, want 64", name, len(secrets[name]))
		}
	}
}
