const e={postgres:"Postgres",nats:"NATS",jetstream:"JetStream"},t=s=>e[s]??s;export{t as s};
