// Controllers of Kubeflow, on loopback and with a certificate from a directory. Their own programs
// listen on all interfaces and wait for certificates that they keep at a fixed path.
package main

import (
	"context"
	"flag"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainercontroller "github.com/kubeflow/trainer/v2/pkg/controller"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime/core"
	trainerwebhooks "github.com/kubeflow/trainer/v2/pkg/webhooks"
	operator "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	operatorconfig "github.com/kubeflow/training-operator/pkg/config"
	operatorcontroller "github.com/kubeflow/training-operator/pkg/controller.v1"
	operatorcommon "github.com/kubeflow/training-operator/pkg/controller.v1/common"
	operatorwebhooks "github.com/kubeflow/training-operator/pkg/webhooks"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	schedulerplugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
)

var setups = map[string]func(context.Context, ctrl.Manager) error{
	"trainer":           setupTrainer,
	"training-operator": setupTrainingOperator,
}

func main() {
	which := flag.String("controllers", "", "trainer or training-operator")
	certificates := flag.String("certificates", "", "directory of tls.crt and tls.key")
	port := flag.Int("webhook-port", 9443, "port of the webhooks")
	probes := flag.String("probes", "127.0.0.1:8081", "address of the probes")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, jobset.AddToScheme, operator.AddToScheme,
		schedulerplugins.AddToScheme, trainer.AddToScheme, volcano.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = 500, 500
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probes,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: "127.0.0.1", Port: *port, CertDir: *certificates,
		}),
	})
	utilruntime.Must(err)
	ctx := ctrl.SetupSignalHandler()
	utilruntime.Must(setups[*which](ctx, mgr))
	utilruntime.Must(mgr.AddReadyzCheck("readyz", mgr.GetWebhookServer().StartedChecker()))
	utilruntime.Must(mgr.Start(ctx))
}

func setupTrainer(ctx context.Context, mgr ctrl.Manager) error {
	runtimes, err := trainerruntime.New(ctx, mgr.GetClient(), mgr.GetFieldIndexer())
	if err != nil {
		return err
	}
	if _, err = trainercontroller.SetupControllers(mgr, runtimes, controller.Options{}); err != nil {
		return err
	}
	_, err = trainerwebhooks.Setup(mgr, runtimes)
	return err
}

func setupTrainingOperator(_ context.Context, mgr ctrl.Manager) error {
	operatorconfig.Config.PyTorchInitContainerImage = operatorconfig.PyTorchInitContainerImageDefault
	operatorconfig.Config.PyTorchInitContainerMaxTries = operatorconfig.PyTorchInitContainerMaxTriesDefault
	operatorconfig.Config.MPIKubectlDeliveryImage = operatorconfig.MPIKubectlDeliveryImageDefault
	noGangs := operatorcommon.GenNonGangSchedulerSetupFunc()
	for kind, setup := range operatorcontroller.SupportedSchemeReconciler {
		if err := setup(mgr, noGangs, 1); err != nil {
			return err
		}
		if err := operatorwebhooks.SupportedSchemeWebhook[kind](mgr); err != nil {
			return err
		}
	}
	return nil
}
