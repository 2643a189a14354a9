//! Runs the crate's standalone indexer: indexer-peer PORT BLOCK_SIZE MODEL.
use dynamo_kv_router::services::indexer::{IndexerConfig, run_server};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let config = IndexerConfig {
        block_size: Some(arguments[2].parse()?),
        port: arguments[1].parse()?,
        threads: 2,
        workers: None,
        model_name: arguments[3].clone(),
        routing_group: dynamo_kv_router::DEFAULT_ROUTING_GROUP.to_string(),
        peers: None,
        access_log: None,
        trace_id_header: http::HeaderName::from_static("x-request-id"),
        access_log_local_time: false,
    };
    tokio::runtime::Runtime::new()?.block_on(run_server(config))
}
