//! Images without a registry: writes OCI image layouts and serves one as a read-only mirror.
//!
//! `imagetool add` puts one image, made of directory trees, into a layout; `imagetool serve` answers a runtime's pulls
//! from it, so that an image pulled `Always` needs no network. What goes into an image is decided by `hack/images`.

mod layer;
mod layout;
mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "imagetool", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Adds one image to an OCI image layout, made on first use.
    Add(AddArgs),
    /// Serves an OCI image layout as a read-only registry.
    Serve(ServeArgs),
}

#[derive(Args)]
struct AddArgs {
    /// The layout's directory.
    #[arg(long)]
    layout: PathBuf,
    /// A full name users type, such as docker.io/library/nginx:latest; repeatable.
    #[arg(long = "name", required = true)]
    names: Vec<String>,
    /// A directory that becomes one layer; repeatable, lowest first.
    #[arg(long = "layer", required = true)]
    layers: Vec<PathBuf>,
    /// One word of the entrypoint; repeatable.
    #[arg(long = "entrypoint", allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// One word of the default arguments; repeatable.
    #[arg(long = "cmd", allow_hyphen_values = true)]
    cmd: Vec<String>,
    /// KEY=VALUE; repeatable.
    #[arg(long = "env")]
    env: Vec<String>,
    /// An exposed port such as 80/tcp; repeatable.
    #[arg(long = "port")]
    ports: Vec<String>,
    /// User (and group) the process runs as.
    #[arg(long)]
    user: Option<String>,
    /// The signal that asks the process to end.
    #[arg(long)]
    stop_signal: Option<String>,
}

#[derive(Args)]
struct ServeArgs {
    /// The layout's directory.
    #[arg(long)]
    layout: PathBuf,
    /// Address to listen on.
    #[arg(long)]
    listen: SocketAddr,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Add(args) => {
            let image = layout::Image {
                names: args.names,
                layers: args.layers,
                entrypoint: args.entrypoint,
                cmd: args.cmd,
                env: args.env,
                ports: args.ports,
                user: args.user,
                stop_signal: args.stop_signal,
            };
            let digest = layout::add(&args.layout, &image)?;
            println!("{digest} {}", image.names.join(" "));
        }
        Command::Serve(args) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve::serve(args.layout, args.listen))?;
        }
    }
    Ok(())
}
