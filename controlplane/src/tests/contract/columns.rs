//! §5: the columns of each kind's Table after its name, in order; `*` marks those of `-o wide`.

use std::collections::BTreeMap;

use crate::resource::Registry;

const COLUMNS: &str = "
/Pod: Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*
apps/Deployment: Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*
apps/ReplicaSet: Desired, Current, Ready, Age, Containers*, Images*, Selector*
/ReplicationController: Desired, Current, Ready, Age, Containers*, Images*, Selector*
apps/DaemonSet: Desired, Current, Ready, Up-to-date, Available, Node Selector, Age, Containers*, Images*, Selector*
apps/StatefulSet: Ready, Age, Containers*, Images*
apps/ControllerRevision: Controller, Revision, Age
batch/Job: Status, Completions, Duration, Age, Containers*, Images*, Selector*
batch/CronJob: Schedule, Timezone, Suspend, Active, Last Schedule, Age, Containers*, Images*, Selector*
/Service: Type, Cluster-IP, External-IP, Port(s), Age, Selector*
/Node: Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, Container-Runtime*
/Namespace: Status, Age
/Secret: Type, Data, Age
/ConfigMap: Data, Age
/ServiceAccount: Age
/Endpoints: Endpoints, Age
/ResourceQuota: Request, Limit, Age
/PersistentVolumeClaim: Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*
/PersistentVolume: Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, Reason, Age, VolumeMode*
/PodTemplate: Containers, Images, Pod Labels
/ComponentStatus: Status, Message, Error
/LimitRange: Created At
discovery.k8s.io/EndpointSlice: AddressType, Ports, Endpoints, Age
coordination.k8s.io/Lease: Holder, Age
policy/PodDisruptionBudget: Min Available, Max Unavailable, Allowed Disruptions, Age
autoscaling/HorizontalPodAutoscaler: Reference, Targets, MinPods, MaxPods, Replicas, Age
networking.k8s.io/Ingress: Class, Hosts, Address, Ports, Age
networking.k8s.io/IngressClass: Controller, Parameters, Age
networking.k8s.io/NetworkPolicy: Pod-Selector, Age
networking.k8s.io/ServiceCIDR: CIDRs, Age
networking.k8s.io/IPAddress: ParentRef, Age
rbac.authorization.k8s.io/RoleBinding: Role, Age, Users*, Groups*, ServiceAccounts*
rbac.authorization.k8s.io/ClusterRoleBinding: Role, Age, Users*, Groups*, ServiceAccounts*
rbac.authorization.k8s.io/Role: Created At
rbac.authorization.k8s.io/ClusterRole: Created At
certificates.k8s.io/CertificateSigningRequest: Age, SignerName, Requestor, RequestedDuration, Condition
scheduling.k8s.io/PriorityClass: Value, Global-Default, Age, PreemptionPolicy
node.k8s.io/RuntimeClass: Handler, Age
storage.k8s.io/StorageClass: Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age
storage.k8s.io/VolumeAttributesClass: DriverName, Age
storage.k8s.io/VolumeAttachment: Attacher, PV, Node, Attached, Age
storage.k8s.io/CSIDriver: AttachRequired, PodInfoOnMount, StorageCapacity, TokenRequests, RequiresRepublish, Modes, Age
storage.k8s.io/CSINode: Drivers, Age
storage.k8s.io/CSIStorageCapacity: StorageClassName, Capacity
admissionregistration.k8s.io/MutatingWebhookConfiguration: Webhooks, Age
admissionregistration.k8s.io/ValidatingWebhookConfiguration: Webhooks, Age
admissionregistration.k8s.io/ValidatingAdmissionPolicy: Validations, ParamKind, Age
admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding: PolicyName, ParamRef, Age
admissionregistration.k8s.io/MutatingAdmissionPolicy: Mutations, ParamKind, Age
admissionregistration.k8s.io/MutatingAdmissionPolicyBinding: PolicyName, ParamRef, Age
apiextensions.k8s.io/CustomResourceDefinition: Created At
flowcontrol.apiserver.k8s.io/FlowSchema: PriorityLevel, MatchingPrecedence, DistinguisherMethod, Age, MissingPL
flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration: Type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age
resource.k8s.io/DeviceClass: Age
resource.k8s.io/ResourceClaim: State, Age
resource.k8s.io/ResourceClaimTemplate: Age
resource.k8s.io/ResourceSlice: Node, Driver, Pool, Age
";
/// Both groups of events; the name comes last.
const EVENT: &str = "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*";

#[test]
fn every_kind_has_the_columns_of_the_contract() {
    let rows = COLUMNS.lines().filter_map(|row| row.split_once(": "));
    let mut expected: BTreeMap<String, String> = rows
        .map(|(kind, columns)| (kind.to_owned(), format!("Name, {columns}")))
        .collect();
    for group in ["", "events.k8s.io"] {
        expected.insert(format!("{group}/Event"), EVENT.to_owned());
    }
    let with_tables = Registry::built_in().kinds().filter(|kind| kind.has_verb("list"));
    let found: BTreeMap<String, String> = with_tables
        .map(|kind| {
            let columns = kind.printer.definitions();
            let names = columns.iter().map(|column| {
                let mark = if column["priority"] == 0 { "" } else { "*" };
                assert_eq!(column["format"] == "name", column["name"] == "Name", "{kind:?}");
                format!("{}{mark}", column["name"].as_str().expect("a name"))
            });
            let names: Vec<String> = names.collect();
            (format!("{}/{}", kind.group, kind.kind), names.join(", "))
        })
        .collect();
    assert_eq!(found, expected);
}
