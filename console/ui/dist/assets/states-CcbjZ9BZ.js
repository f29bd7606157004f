const c=e=>["succeeded","failed","cancelled","skipped"].includes(e);export{c as f};
