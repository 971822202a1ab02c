use lanekeeper_api::{OrderedPartitionSet, validate::validate};
use serde_json::Value;

use super::*;
use crate::compare::differences;

fn validated(change: impl FnOnce(&mut Value)) -> Validated {
    let mut set = json!({
        "apiVersion": "lanekeeper.dev/v1alpha1", "kind": "OrderedPartitionSet",
        "metadata": {"name": "orders.v2", "namespace": "shop", "uid": "u"},
        "spec": {
            "partitions": 2,
            "nats": {"servers": ["nats://a:4222", "nats://b:4222"]},
            "stream": {"name": "ORDERS", "subjects": ["orders.*"]},
            "mapping": {"subject": "orders.*", "keyTokens": [1]},
            "worker": {
                "handler": {"http": {"port": 9000, "path": "/handle", "timeoutSeconds": 60}},
                "podTemplate": {"spec": {"containers": [
                    {"name": "handler", "image": "handler:1", "misspelt": true},
                    {"name": "mesh", "image": "mesh:1"},
                ]}},
            },
        },
    });
    change(&mut set["spec"]);
    let set: OrderedPartitionSet = serde_json::from_value(set).unwrap();
    validate(&set).unwrap()
}

fn blueprint(set: &Validated) -> Blueprint<'_> {
    Blueprint {
        set,
        uid: "u",
        worker_image: "worker:1",
        worker_pull_policy: "IfNotPresent",
        bucket: "lanekeeper",
    }
}

fn built(change: impl FnOnce(&mut Value)) -> Value {
    deployment(&blueprint(&validated(change)), 1)
}

fn environment(deployment: &Value) -> Vec<(String, String)> {
    let env = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or("(from the pod)").to_owned();
    env.iter().map(|one| (text(&one["name"]), text(&one["value"]))).collect()
}

#[test]
fn the_environment_is_the_contract_and_says_nothing_of_the_lane() {
    let mut expected = vec![
        ("NAMESPACE", "shop"),
        ("SET", "orders.v2"),
        ("PARTITION", "1"),
        ("POD", "(from the pod)"),
        ("STREAM", "ORDERS"),
        ("NATS_SERVERS", "nats://a:4222,nats://b:4222"),
        ("HANDLER_URL", "http://127.0.0.1:9000/handle"),
    ];
    let named = |all: &[(&str, &str)]| -> Vec<(String, String)> {
        all.iter().map(|(name, value)| (format!("LANEKEEPER_{name}"), (*value).to_owned())).collect()
    };
    assert_eq!(environment(&built(|_| {})), named(&expected));
    let with_secrets = built(|spec| {
        spec["nats"]["credentialsSecretRef"] = json!({"name": "creds", "key": "k"});
        spec["nats"]["tls"] = json!({"caSecretRef": {"name": "ca", "key": "root.pem"}});
        spec["nats"]["jetStreamDomain"] = json!("hub");
    });
    expected.splice(
        6..6,
        [
            ("NATS_DOMAIN", "hub"),
            ("NATS_AUTH_DIR", "/var/run/lanekeeper/auth"),
            ("TLS_DIR", "/var/run/lanekeeper/tls"),
        ],
    );
    assert_eq!(environment(&with_secrets), named(&expected));
}

#[test]
fn secrets_are_whole_volumes_of_the_lanes_container_alone() {
    let deployment = built(|spec| {
        spec["nats"]["credentialsSecretRef"] = json!({"name": "operator", "key": "o.creds"});
        spec["nats"]["workerCredentialsSecretRef"] = json!({"name": "worker", "key": "w.creds"});
        spec["nats"]["tls"] =
            json!({"clientSecretRef": {"name": "pair"}, "caSecretRef": {"name": "ca", "key": "root.pem"}});
    });
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "worker");
    assert_eq!(pod["volumes"][0]["secret"]["items"], json!([{"key": "w.creds", "path": "user.creds"}]));
    let sources = &pod["volumes"][1]["projected"]["sources"];
    assert_eq!(sources[0]["secret"]["items"], json!([{"key": "root.pem", "path": "ca.crt"}]));
    assert_eq!(sources[1]["secret"]["name"], "pair");
    assert!(!deployment.to_string().contains("o.creds"), "the operator's own credentials stay with it");
    for container in ["containers", "initContainers"] {
        for one in pod[container].as_array().unwrap() {
            let mounts = one["volumeMounts"].as_array().map_or(0, Vec::len);
            assert_eq!(mounts, if one["name"] == "lane" { 2 } else { 0 }, "{}", one["name"]);
            assert!(!one["volumeMounts"].to_string().contains("subPath"));
        }
    }
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
}

#[test]
fn the_template_is_kept_as_it_was_written() {
    let pod = built(|_| {})["spec"]["template"]["spec"].clone();
    // A misspelt field is the API server's to name, so it must get there.
    assert_eq!(pod["initContainers"][0]["misspelt"], true);
    let names: Vec<&str> =
        pod["containers"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["lane", "mesh"]);
    assert_eq!(pod["terminationGracePeriodSeconds"], 75);
}

#[test]
fn a_probe_and_a_security_context_of_the_users_win_over_the_defaults() {
    let probe = json!({"httpGet": {"path": "/up", "port": 9000}});
    let deployment = built(|spec| {
        let handler = &mut spec["worker"]["podTemplate"]["spec"]["containers"][0];
        handler["startupProbe"] = probe.clone();
        handler["securityContext"] =
            json!({"capabilities": {"add": ["NET_ADMIN"]}, "allowPrivilegeEscalation": true});
        spec["worker"]["podTemplate"]["spec"]["securityContext"] = json!({"runAsNonRoot": false});
    });
    let pod = &deployment["spec"]["template"]["spec"];
    let handler = &pod["initContainers"][0];
    assert_eq!(handler["startupProbe"], probe);
    assert_eq!(handler["securityContext"]["capabilities"], json!({"add": ["NET_ADMIN"]}));
    assert_eq!(handler["securityContext"]["allowPrivilegeEscalation"], true);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], false);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(pod["containers"][0]["securityContext"]["runAsNonRoot"], true, "the lane's own stays");
}

#[test]
fn the_selector_finds_the_pods_of_this_partition_and_the_set_those_of_all() {
    let deployment = built(|_| {});
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selector = deployment["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(selector.iter().all(|(name, value)| labels[name] == *value));
    assert_eq!(selector["lanekeeper.dev/partition"], "1");
    let set = lanekeeper_core::names::SetName::new("shop", "orders.v2");
    for term in labels::set_selector(&set).split(',') {
        let (name, value) = term.split_once('=').unwrap();
        assert_eq!(labels[name], value);
    }
    assert!(!labels::set_selector(&set).contains("partition"));
}

#[test]
fn the_hash_changes_with_what_is_wanted_and_not_with_settings_of_the_lane() {
    let hash = |deployment: &Value| deployment["metadata"]["annotations"][labels::APPLIED].clone();
    let first = built(|_| {});
    assert_eq!(hash(&first), hash(&built(|_| {})));
    let same = built(|spec| {
        spec["paused"] = json!(true);
        spec["partitions"] = json!(7);
        spec["retry"] = json!({"maxAttempts": 9});
        spec["consumer"] = json!({"ackWaitSeconds": 3});
    });
    assert_eq!(differences(&first, &same), Vec::new());
    assert_ne!(hash(&first), hash(&built(|spec| spec["worker"]["image"] = json!("mine:2"))));
}

#[test]
fn an_embedded_handler_is_the_lanes_own_image_and_needs_no_template() {
    let deployment = built(|spec| {
        spec["worker"] = json!({"image": "mine:1", "handler": {"embedded": {"timeoutSeconds": 20}}});
    });
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "mine:1");
    assert_eq!(
        pod["containers"][0]["imagePullPolicy"],
        Value::Null,
        "the server's default for a user's image"
    );
    assert_eq!(pod["initContainers"], Value::Null);
    assert_eq!(pod["terminationGracePeriodSeconds"], 35);
    assert!(environment(&deployment).iter().all(|(name, _)| name != "LANEKEEPER_HANDLER_URL"));
}

#[test]
fn the_lanes_container_gets_what_a_template_adds_and_keeps_what_is_its_own() {
    let deployment = built(|spec| {
        spec["nats"]["credentialsSecretRef"] = json!({"name": "creds", "key": "user.creds"});
        spec["worker"] = json!({
            "image": "mine:1",
            "handler": {"embedded": {}},
            "podTemplate": {"spec": {
                "containers": [{
                    "name": "lane", "args": ["--fast"], "imagePullPolicy": "Always",
                    "env": [{"name": "DATABASE_URL", "value": "postgres://db"}],
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                }],
                "volumes": [{"name": "scratch", "emptyDir": {}}],
            }},
        });
    });
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    let lane = &containers[0];
    assert_eq!((&lane["image"], &lane["imagePullPolicy"]), (&json!("mine:1"), &json!("Always")));
    assert_eq!(lane["args"], json!(["--fast"]));
    let names = |list: &str| -> Vec<String> {
        let all = lane[list].as_array().unwrap().iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("volumeMounts"), ["lanekeeper-auth", "scratch"]);
    assert_eq!(names("env").first().map(String::as_str), Some("LANEKEEPER_NAMESPACE"));
    assert_eq!(names("env").last().map(String::as_str), Some("DATABASE_URL"));
    assert_eq!(lane["readinessProbe"]["httpGet"]["path"], "/readyz");
}

fn with_a_program(change: impl FnOnce(&mut Value)) -> Value {
    built(|spec| {
        spec["nats"]["credentialsSecretRef"] = json!({"name": "creds", "key": "user.creds"});
        spec["worker"] = json!({
            "handler": {"exec": {"command": ["python3", "/app/handle.py", "$(POD)"], "timeoutSeconds": 20}},
            "podTemplate": {"spec": {
                "initContainers": [{"name": "migrate", "image": "migrate:1"}],
                "containers": [
                    {
                        "name": "handler", "image": "python:3", "imagePullPolicy": "Always", "workingDir": "/app",
                        "env": [{"name": "DATABASE_URL", "value": "postgres://db"}],
                        "volumeMounts": [{"name": "app", "mountPath": "/app"}],
                    },
                    {"name": "mesh", "image": "mesh:1"},
                ],
                "volumes": [{"name": "app", "configMap": {"name": "app"}}],
            }},
        });
        change(spec);
    })
}

#[test]
fn a_program_runs_below_the_lane_in_the_users_image_and_the_lane_is_brought_there() {
    let deployment = with_a_program(|_| {});
    let pod = &deployment["spec"]["template"]["spec"];
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&pod["initContainers"]), ["lane-install", "migrate"]);
    assert_eq!(names(&pod["containers"]), ["lane", "mesh"]);
    assert_eq!(names(&pod["volumes"]), ["app", "lanekeeper-auth", "lanekeeper-program"]);
    assert_eq!(pod["terminationGracePeriodSeconds"], 35);

    let install = &pod["initContainers"][0];
    assert_eq!(
        (&install["image"], &install["imagePullPolicy"]),
        (&json!("worker:1"), &json!("IfNotPresent"))
    );
    assert_eq!(install["args"], json!(["install", "/var/run/lanekeeper/program"]));
    assert_eq!(install["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(names(&install["volumeMounts"]), ["lanekeeper-program"]);

    let lane = &pod["containers"][0];
    assert_eq!((&lane["image"], &lane["imagePullPolicy"]), (&json!("python:3"), &json!("Always")));
    assert_eq!(lane["command"], json!(["/var/run/lanekeeper/program/lanekeeper-worker"]));
    assert_eq!(lane["args"], Value::Null);
    assert_eq!(lane["workingDir"], "/app");
    assert_eq!(names(&lane["volumeMounts"]), ["lanekeeper-auth", "lanekeeper-program", "app"]);
    assert_eq!(lane["volumeMounts"][1]["readOnly"], true);
    assert_eq!(lane["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(lane["securityContext"]["allowPrivilegeEscalation"], false);
    let variables = environment(&deployment);
    let command = variables.iter().find(|(name, _)| name == "LANEKEEPER_HANDLER_EXEC").unwrap();
    assert_eq!(command.1, r#"["python3","/app/handle.py","$$(POD)"]"#, "the kubelet must not replace it");
    assert_eq!(variables.last().map(|(name, _)| name.as_str()), Some("DATABASE_URL"));
    assert!(variables.iter().all(|(name, _)| name != "LANEKEEPER_HANDLER_URL"));
}

#[test]
fn resources_of_a_program_are_its_containers_or_the_sets_and_those_of_the_install_are_the_same() {
    let amounts = |deployment: &Value| {
        let pod = &deployment["spec"]["template"]["spec"];
        let (install, lane) = (&pod["initContainers"][0]["resources"], &pod["containers"][0]["resources"]);
        assert_eq!(install, lane);
        lane.clone()
    };
    assert_eq!(amounts(&with_a_program(|_| {})), Value::Null);
    let of_set = json!({"requests": {"cpu": "10m"}});
    let with_set = |spec: &mut Value| spec["worker"]["resources"] = of_set.clone();
    assert_eq!(amounts(&with_a_program(with_set)), of_set);
    let own = json!({"limits": {"memory": "64Mi"}});
    let both = |spec: &mut Value| {
        with_set(spec);
        spec["worker"]["podTemplate"]["spec"]["containers"][0]["resources"] = own.clone();
    };
    assert_eq!(amounts(&with_a_program(both)), own);
}

#[test]
fn standbys_are_further_pods_of_the_deployment_apart_from_each_other_if_that_can_be() {
    let without = built(|_| {});
    assert_eq!(without["spec"]["replicas"], Value::Null, "a person or an autoscaler may set it");
    let spread =
        |deployment: &Value| deployment["spec"]["template"]["spec"]["topologySpreadConstraints"].clone();
    assert_eq!(spread(&without), Value::Null);
    let with = built(|spec| spec["worker"]["standbys"] = json!(2));
    assert_eq!(with["spec"]["replicas"], 3);
    let hint = &spread(&with)[0];
    assert_eq!(hint["whenUnsatisfiable"], "ScheduleAnyway");
    assert_eq!(hint["labelSelector"]["matchLabels"], with["spec"]["selector"]["matchLabels"]);
    for (field, theirs) in
        [("affinity", json!({"podAntiAffinity": {}})), ("topologySpreadConstraints", json!([]))]
    {
        let placed = built(|spec| {
            spec["worker"]["standbys"] = json!(1);
            spec["worker"]["podTemplate"]["spec"][field] = theirs.clone();
        });
        assert_eq!(placed["spec"]["replicas"], 2);
        assert_eq!(
            placed["spec"]["template"]["spec"][field], theirs,
            "whoever places the pods does so alone"
        );
    }
}

#[test]
fn a_disruption_budget_lets_one_pod_of_its_own_lane_go_at_a_time() {
    let set = validated(|spec| spec["worker"]["standbys"] = json!(2));
    let (budget, deployment) = (disruption_budget(&blueprint(&set), 1), deployment(&blueprint(&set), 1));
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["minAvailable"], Value::Null);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    for same in ["name", "namespace", "labels", "ownerReferences"] {
        assert_eq!(budget["metadata"][same], deployment["metadata"][same], "{same}");
    }
    let mark = &budget["metadata"]["annotations"][labels::APPLIED];
    assert!(mark.is_string() && *mark != deployment["metadata"]["annotations"][labels::APPLIED]);
    assert_ne!(budget["spec"]["selector"], disruption_budget(&blueprint(&set), 0)["spec"]["selector"]);
}

#[test]
fn lanes_of_one_pod_have_no_disruption_budget() {
    let standbys = |number: i32| validated(|spec| spec["worker"]["standbys"] = json!(number));
    assert_eq!([0, 1, 2].map(|number| has_disruption_budgets(&standbys(number))), [false, true, true]);
    assert!(!has_disruption_budgets(&validated(|_| {})), "nor has a set that says nothing of standbys");
}
