package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/server/config"
	"github.com/headgate-io/headgate/server/kube"
)

func newKube() *cobra.Command {
	return group("kube", "Limit the requests of a Kubernetes API server, and keep rules in Kubernetes",
		newKubeAdmission(), newKubeManifest(), newKubeCRD())
}

func newKubeAdmission() *cobra.Command {
	var from configFlags
	var cert, key string
	cmd := &cobra.Command{
		Use:   "admission",
		Short: "Run the webhook that API servers ask",
		Long: `Run the validating admission webhook that limits what users may change through
a Kubernetes API server: by user, group, namespace, resource and operation.
A request over a limit is refused with 429 and details.retryAfterSeconds.
See docs/kubernetes.md, and "headgate kube manifest" for what runs it in a
cluster.

It is "headgate serve" with listen: none and decisions.admission.enabled: true,
and all of its settings, metrics and reloads. The certificate is read again
when its files change, without a restart.`,
		Example: `  headgate kube admission --tls-cert tls.crt --tls-key tls.key --db sqlite:headgate.db
  headgate kube admission --config headgate.yaml`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, from.file, func() (config.Config, error) {
				return from.complete(cmd, func(c *config.Config) {
					c.Listen, c.Decisions.Admission.Enabled = config.NoGateway, true
					if c.Decisions.Listen == "" {
						c.Decisions.Listen = "0.0.0.0:8443"
					}
					if cmd.Flags().Changed("tls-cert") || cmd.Flags().Changed("tls-key") {
						c.Decisions.TLS.CertFile, c.Decisions.TLS.KeyFile = cert, key
					}
				})
			})
		},
	}
	from.addFlags(cmd, "decisions", "admin", "admin-token-file", "routes", "db", "secret-file", "max-buckets",
		"max-bytes")
	cmd.Flags().Lookup("decisions").Usage = "address where API servers ask (default 0.0.0.0:8443)"
	cmd.Flags().StringVar(&cert, "tls-cert", "", "certificate of the webhook, PEM (needed, but on loopback)")
	cmd.Flags().StringVar(&key, "tls-key", "", "its key, PEM")
	return cmd
}

func newKubeManifest() *cobra.Command {
	var m kube.Manifest
	var ca string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "manifest",
		Short: "Print what runs the webhook in a cluster",
		Long: `Print the objects that run the webhook in a cluster: its Deployment and Service,
the configuration, the rights it needs, and the ValidatingWebhookConfiguration by
which API servers ask it. Nodes, the control plane, kube-system, leases, events,
statuses and the webhook's own namespace are left out of what they ask about, as
each would end in a loop or in a cluster that cannot be mended.

--failure-policy says what becomes of requests while no webhook answers: Fail
refuses them, Ignore lets all of them pass. The certificate is expected in a Secret
NAME-tls; with --cert-manager, cert-manager makes and renews it, otherwise --ca-file
names who signed it.`,
		Example: `  headgate kube crd | kubectl apply -f -
  headgate kube manifest --image registry.example/headgate:v0.1.0 --cert-manager | kubectl apply -f -`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if ca != "" {
				if m.CA, err = os.ReadFile(ca); err != nil {
					return usagef("ca-file: %w", err)
				}
			}
			text, err := m.YAML()
			if err != nil {
				return usageError{err}
			}
			return writeObjects(cmd.OutOrStdout(), text, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&m.Namespace, "namespace", "headgate", "namespace where it runs, which exists")
	flags.StringVar(&m.Name, "name", "headgate-admission", "name of all objects")
	flags.StringVar(&m.Image, "image", "headgate", "image to run")
	flags.IntVar(&m.Replicas, "replicas", 2, "pods")
	flags.StringVar(&m.FailurePolicy, "failure-policy", "Fail",
		"what becomes of requests while no webhook answers: Fail or Ignore")
	flags.StringVar(&ca, "ca-file", "", "certificate of who signed the webhook's, PEM")
	flags.BoolVar(&m.CertManager, "cert-manager", false, "have cert-manager make the certificate")
	flags.BoolVar(&asJSON, "json", false, "print a List in JSON")
	return cmd
}

func newKubeCRD() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Print the definition of RateLimitPolicy",
		Long: `Print the CustomResourceDefinition of RateLimitPolicy: rules as objects of a
namespace, which gateways with db: kubernetes:NAMESPACE read. See
docs/kubernetes.md.`,
		Example: `  headgate kube crd | kubectl apply -f -`,
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeObjects(cmd.OutOrStdout(), kube.CRD, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a List in JSON")
	return cmd
}

// writeObjects writes objects of Kubernetes, in YAML, as they are or as a List in JSON.
func writeObjects(w io.Writer, text []byte, asJSON bool) error {
	if !asJSON {
		_, err := w.Write(text)
		return err
	}
	items, err := kube.Objects(text)
	if err != nil {
		return err
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}
