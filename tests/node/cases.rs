//! The cases, in the order they run.

mod autonomy;
mod class;
mod crash;
mod debug;
mod disk;
mod dual_stack;
mod eviction;
mod forward;
mod identity;
mod job;
mod metrics;
mod mistake;
mod network;
mod planes;
mod pod;
mod provider;
mod registry;
mod resize;
mod service;
mod sets;
mod several;
mod static_pod;
mod stream;
mod takeover;
mod traffic;
mod workload;

use crate::cluster::Cluster;
use crate::leftovers;

/// A case: given the cluster, it leaves the cluster as it was (but for the last).
pub(crate) type Case = fn(&Cluster) -> anyhow::Result<()>;

/// Every case, with its name.
pub(crate) const ALL: &[(&str, Case)] = &[
    ("hack_up_twice_does_no_harm", workload::up_twice),
    ("runtime_is_the_one_asked_for", workload::runtime_version),
    ("metrics_are_upstreams", metrics::metrics),
    ("joined_by_token", identity::joined_by_token),
    ("confined_to_its_node", identity::confined_to_its_node),
    ("services_by_name_address_and_port", service::services),
    ("names_of_the_cluster", service::names),
    ("network_policies", service::policies),
    ("a_second_node_comes_and_goes", service::several_nodes),
    ("services_of_every_kind", traffic::every_kind),
    ("dual_stack_on_two_nodes", dual_stack::two_nodes),
    ("three_control_planes_over_etcd", planes::three),
    ("three_nodes_driven_by_kubectl", several::three_nodes),
    ("deployment_answers_on_every_address", workload::deployment_answers),
    ("apply_is_seen_by_get_w", workload::apply_and_watch),
    ("scale_3_5_2", workload::scale),
    ("rolling_update_to_a_second_image", workload::rolling_update),
    ("stateful_set_by_parts", sets::stateful_set),
    ("daemon_set_there_and_back", sets::daemon_set),
    ("budget_holds_a_drain", sets::budget),
    ("jobs_and_cron_jobs", job::jobs),
    ("logs", stream::logs),
    ("logs_follow", stream::logs_follow),
    ("exec", stream::exec),
    ("exec_with_input_from_a_file", stream::exec_input),
    ("exec_with_a_terminal", stream::exec_terminal),
    ("debug_with_a_terminal", debug::debug),
    ("resize_in_place", resize::resize),
    ("port_forward", forward::port_forward),
    ("cp_both_ways", forward::copy),
    ("edit", forward::edit),
    ("init_containers_and_volumes", pod::volumes),
    ("configmap_change_reaches_the_pod", pod::configmap_change),
    ("phases_and_restarts", pod::phases_and_restarts),
    ("probes", pod::probes),
    ("graceful_end", pod::graceful_end),
    ("qos_cgroups", pod::qos_cgroups),
    ("runtime_class_and_overhead", class::runtime_class),
    ("users_of_its_own_are_refused", class::own_users),
    ("variables_of_files", class::env_file),
    ("logs_are_rotated_under_their_followers", disk::log_rotation),
    ("unused_images_are_collected", disk::image_collection),
    ("private_image", registry::private_image),
    ("login_from_a_plugin_over_tls", provider::plugin_over_tls),
    ("static_pod", static_pod::static_pod),
    ("standalone_kubelet", static_pod::standalone),
    ("node_short_of_memory", eviction::memory),
    ("kubelet_killed", crash::kubelet_killed),
    ("controlplane_killed", crash::controlplane_killed),
    ("runtime_killed", crash::runtime_killed),
    ("rebooted_without_a_control_plane", autonomy::rebooted_alone),
    ("vanished_sandboxes_hold_nothing", network::vanished_sandboxes),
    ("range_changed", network::range_changed),
    ("address_changed", network::address_changed),
    ("node_taken_over", takeover::taken_over),
    ("node_given_back", takeover::given_back),
    ("manifest_mistakes", mistake::manifests),
    ("image_that_does_not_exist", mistake::absent_image),
    ("image_without_a_command", mistake::image_without_command),
    ("address_range_exhausted", mistake::address_range_exhausted),
    ("pod_that_fits_nowhere", mistake::pod_that_fits_nowhere),
    ("cni_plugins_missing", mistake::plugins_missing),
    ("node_deleted_under_a_live_kubelet", crash::node_deleted),
    ("kubelet_refuses", mistake::kubelet_refuses),
    ("controlplane_refuses", mistake::controlplane_refuses),
    ("full_disk", mistake::full_disk),
    ("nothing_is_left_of_pods", leftovers::of_pods),
    ("hack_down_and_up_keep_the_data", crash::down_and_up),
    // The last: hack/down finds a cluster that died with pods running.
    ("everything_killed", crash::everything_killed),
];
